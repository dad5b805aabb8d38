"""Read each source of settings (file, environment, flags) into a layer, and merge the layers.

Rules: (1) every source is checked whole by the same document, and faults are collected, never
raised; (2) paths are absolute afterwards, relative to where they were written; (3) a stronger
source wins key by key, except for upstreams: one that lists upstreams, or names the address of one,
replaces them all, since limits, proxy and credentials of one must not stick to another.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jackline.config import keys
from jackline.config.declaration import FLAGS, ROOT, SETTINGS, VARIABLES, may_be_reference
from jackline.config.faults import ConfigFault
from jackline.config.files import FileText
from jackline.config.keys import Key, KeyLines, dotted, plain
from jackline.config.references import exposure, file_of, is_reference, path_from, resolve
from jackline.settings import Form

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# Whoever names one of these names the upstream anew.
_NAMING = (("upstream", 0, "url"), ("upstream", 0, "preset"))
# Of one source: each is looked up in its file, and keys like it are looked for.
_MOST_FAULTS = 100
# They steer the command line itself, or name the file.
_NO_SETTINGS = (keys.FILE_VARIABLE, "JACKLINE_DEBUG")
_SECTIONS = tuple(f"{keys.PREFIX}{name.upper()}_" for name in ROOT)
_IN_DOLLARS = (("budget", "dollars"), ("budget", "rolling", "dollars"), ("resume", "spend"))


@dataclass(slots=True)
class Layer:
    """Settings of one source, or of several merged, and where each value was written."""

    values: dict[Key, Any] = field(default_factory=dict)
    origins: dict[Key, str] = field(default_factory=dict)
    faults: list[ConfigFault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # Where each upstream was written, and which of them have faults already.
    upstreams: list[str] = field(default_factory=list)
    wrong_upstreams: set[int] = field(default_factory=set)
    # Whether these are all upstreams, or only say more of the first.
    replaces_upstreams: bool = False

    @classmethod
    def from_file(cls, file: FileText) -> Layer:
        """The settings in a file."""
        lines = KeyLines(file.text)

        def where(place: Key) -> str:
            line = lines.line_of((*file.under, *place))
            return str(file.path) if line is None else f"{file.path}:{line}"

        layer = cls._checked(file.table, where, file.path.parent)
        layer.replaces_upstreams = bool(layer.upstreams)
        # What has no line, such as how many more there are, comes last.
        layer.faults.sort(key=lambda fault: fault.line or len(file.text))
        return layer

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], cwd: Path) -> Layer:
        """The settings in JACKLINE_* variables; an empty one counts as not set."""
        document: dict[str, Any] = {}
        origins: dict[tuple[str, ...], str] = {}
        faults, warnings = [], []
        for name, text in sorted(environ.items()):
            if not name.startswith(keys.PREFIX) or not text or name in _NO_SETTINGS:
                continue
            key = VARIABLES.get(name)
            if key is not None:
                origins[key] = name
                _put(document, _in_first(key), SETTINGS[key].from_variable(text))
            elif name.startswith(_SECTIONS):
                close = difflib.get_close_matches(name, VARIABLES, n=1, cutoff=0.6)
                offer = f"; did you mean {close[0]}?" if close else ""
                faults.append(ConfigFault(name, "", f"there is no such key{offer}"))
            else:
                warnings.append(f"{name} is not a variable that Jackline knows")
        layer = cls._checked(document, lambda place: origins.get(plain(place), "environment"), cwd)
        layer.replaces_upstreams = any(key in layer.values for key in _NAMING)
        layer.faults += faults
        layer.warnings += warnings
        return layer

    @classmethod
    def from_flags(cls, flags: Mapping[str, object], cwd: Path) -> Layer:
        """The settings in flags, by short name or dotted key; None counts as not set."""
        document: dict[str, Any] = {}
        origins: dict[tuple[str, ...], str] = {}
        for name, value in flags.items():
            if value is None or name == keys.FILE_FLAG:
                continue
            key = FLAGS.get(name) or keys.undotted(name)
            origins[key] = f"flag --{name.replace('_', '-')}" if name in FLAGS else f"flag {name}"
            _put(document, _in_first(key), str(value) if isinstance(value, Path) else value)
        layer = cls._checked(document, lambda place: origins.get(plain(place), "flags"), cwd)
        layer.replaces_upstreams = any(key in layer.values for key in _NAMING)
        return layer

    @classmethod
    def _checked(cls, table: dict[str, Any], where: Callable[[Key], str], folder: Path) -> Layer:
        layer = cls()
        document, found = _validated(table)
        if found:
            layer.faults += [
                ConfigFault.from_pydantic(each, where) for each in found[:_MOST_FAULTS]
            ]
            if len(found) > _MOST_FAULTS:
                rest = f"and {len(found) - _MOST_FAULTS:,} more"
                layer.faults.append(ConfigFault(where(()), "", rest))
            wrong = [fault["loc"] for fault in found]
            document = _what_is_right(table, wrong)
            layer.wrong_upstreams = {
                part
                for place in wrong
                if place[0] == "upstream"
                for part in place[1:2]
                if isinstance(part, int)
            }
        layer.values = dict(_leaves(document))
        layer.origins = {key: where(key) for key in layer.values}
        layer.upstreams = [
            where(("upstream", at)) for at, _ in enumerate(document.get("upstream", ()))
        ]
        for key, value in layer.values.items():
            try:
                one = SETTINGS.get(plain(key))
                if one is not None and one.setting.form is Form.PATH:
                    layer.values[key] = str(path_from(folder, value))
                elif may_be_reference(key) and value.startswith("file:"):
                    path = path_from(folder, value.removeprefix("file:"))
                    layer.values[key] = f"file:{path}"
            except ValueError as error:
                layer.faults.append(ConfigFault(layer.origins[key], dotted(key), str(error)))
        return layer

    def take(self, layer: Layer) -> None:
        """Merge a stronger source."""
        self.faults += layer.faults
        self.warnings += layer.warnings
        if layer.replaces_upstreams:
            for key in [key for key in self.values if key[0] == "upstream"]:
                del self.values[key], self.origins[key]
            self.upstreams = []
            self.wrong_upstreams = set()
        self.upstreams += layer.upstreams[len(self.upstreams) :]
        self.wrong_upstreams |= layer.wrong_upstreams
        self.values |= layer.values
        self.origins |= layer.origins

    def fill(self, key: Key, value: object, origin: str = "default") -> None:
        """Set what no source has set."""
        if key not in self.values:
            self.values[key] = value
            self.origins[key] = origin

    def fault(self, key: Key, what: str) -> None:
        """Note what is wrong with this key, at the place where it or its upstream is written."""
        self.faults.append(ConfigFault(self.place(key), dotted(key), what))

    def place(self, key: Key) -> str:
        """Where this key is written, or else the upstream that lacks it."""
        if self.is_filled_in(key) and key[0] == "upstream" and isinstance(key[1], int):
            return self.upstreams[key[1]]
        return self.origins.get(key, "default")

    @property
    def limits_dollars(self) -> bool:
        """Whether one of these settings limits what may be spent, in dollars."""
        return any(self.values.get(key) is not None for key in _IN_DOLLARS)

    def is_filled_in(self, key: Key) -> bool:
        """Whether no source has set this key."""
        origin = self.origins.get(key, "default")
        return origin == "default" or origin.startswith("preset ")

    def table(self, *under: str | int) -> dict[str, Any]:
        """The values of this table and of the tables in it; what is not set is left out."""
        found: dict[Any, Any] = {}
        for key, value in self.values.items():
            if key[: len(under)] == under and value is not None:
                _put(found, key[len(under) :], value)
        return found

    def look_up_secrets(self, environ: Mapping[str, str]) -> None:
        """Put the secrets in the places of their references."""
        for key, reference in list(self.values.items()):
            if not may_be_reference(key) or reference is None or not is_reference(reference):
                continue
            one = SETTINGS.get(plain(key))
            if one is None or one.setting.form is not Form.UNRESOLVED:
                try:
                    self.values[key] = resolve(reference, environ)
                except ValueError as error:
                    self.fault(key, str(error))
            path = file_of(reference)
            exposed = None if path is None else exposure(path)
            if exposed is not None:
                self.warnings.append(f"{dotted(key)}: {exposed}")


def _what_is_right(table: dict[str, Any], wrong: list[Key]) -> dict[str, Any]:
    """The document without its faults, so that what depends on several keys is judged fairly."""
    rest = copy.deepcopy(table)
    for place in wrong:
        holder: Any = rest
        for part in place[:-1]:
            try:
                holder = holder[part]
            except (LookupError, TypeError):
                holder = None
        if isinstance(holder, dict):
            holder.pop(place[-1], None)
    # With a fault that cannot be cut out, nothing of this source is judged.
    return _validated(rest)[0]


def _validated(table: dict[str, Any]) -> tuple[dict[str, Any], list[ErrorDetails]]:
    """The values that this source sets, or all that is wrong with them."""
    if not table:
        return {}, []
    from jackline.config.document import validate  # noqa: PLC0415 -- loads pydantic

    return validate(table)


def _in_first(key: tuple[str, ...]) -> Key:
    """The key as the document has it; of upstreams, in the first."""
    return ("upstream", 0, *key[1:]) if key[:1] == ("upstream",) and len(key) > 1 else key


def _put(table: Any, key: Key, value: object) -> None:
    *tables, name = key
    for part, after in zip(tables, key[1:], strict=True):
        if isinstance(table, list):
            place = int(part)
            table.extend({} for _ in range(place + 1 - len(table)))
            table = table[place]
        else:
            table = table.setdefault(part, [] if isinstance(after, int) else {})
    table[name] = value


def _leaves(value: Any, key: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Every key in these tables, with its value."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _leaves(one, (*key, name))
    elif key == ("upstream",):
        for place, one in enumerate(value):
            yield from _leaves(one, (*key, place))
    else:
        yield key, value
