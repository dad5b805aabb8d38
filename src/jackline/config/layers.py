"""Read each source of settings (file, environment, flags) into a layer, and merge the layers.

Rules: (1) every source is checked whole by the same document, and faults are collected, never
raised; (2) paths are absolute afterwards, relative to where they were written; (3) a stronger
source wins key by key, except for upstreams: one that lists upstreams, or names the address of one,
replaces them all, since limits, proxy and credentials of one must not stick to another.
Not here: the order of the sources (loader.py), what counts of a project's file (project.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_origin

from pydantic import ValidationError

from jackline.config import keys
from jackline.config.document import (
    ConfigFault,
    Document,
    defaults,
    field_of,
    from_validation,
    unknown,
    written,
)
from jackline.config.files import FileText
from jackline.config.keys import Key, KeyLines, Place, dotted, plain
from jackline.config.references import anchored, path_from

_SECRETS = (
    ("listen", "token"),
    ("upstream", "proxy"),
    ("upstream", "credential"),
    ("notify", "webhook"),
    ("notify", "secret"),
    ("notify", "apprise"),
    ("otlp", "endpoint"),
    ("otlp", "authorization"),
)
_SECRET_TABLE = ("upstream", "headers")
# Looked up by whoever uses it, when that is: no work may wait for it, or stop without it.
_ADMIN_KEY = ("upstream", "admin_key")
_PATHS = (("state",), ("upstream", "ca_file"))
# Whoever names one of these names the upstream anew.
_NAMING = (("upstream", 0, "url"), ("upstream", 0, "preset"))
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


@dataclass(slots=True)
class Layer:
    """What one source says, and where each value stands."""

    values: dict[Key, Any] = field(default_factory=dict)
    origins: dict[Key, str] = field(default_factory=dict)
    faults: tuple[ConfigFault, ...] = ()
    # Where each upstream stands, and which of them have faults already.
    upstreams: list[str] = field(default_factory=list)
    wrong_upstreams: set[int] = field(default_factory=set)
    # Whether they are all that there are, or the first is only said more of.
    replaces_upstreams: bool = False


def may_be_secret(key: Key) -> bool:
    """Whether a reference may stand under this key."""
    name = plain(key)
    return name in (*_SECRETS, _ADMIN_KEY) or name[:-1] == _SECRET_TABLE


def is_looked_up_later(key: Key) -> bool:
    """Whether the reference itself is what settings hold."""
    return plain(key) == _ADMIN_KEY


def layer_from_file(file: FileText) -> Layer:
    """What a file says."""
    lines = KeyLines(file.text)

    def where(place: Place) -> str:
        line = lines.line_of((*file.under, *place))
        return str(file.path) if line is None else f"{file.path}:{line}"

    layer = _checked(file.table, where, file.path.parent)
    layer.replaces_upstreams = bool(layer.upstreams)
    layer.faults = tuple(sorted(layer.faults, key=_line_number))
    return layer


def layer_from_environment(environ: Mapping[str, str], cwd: Path, warnings: list[str]) -> Layer:
    """What JACKLINE_* variables say; an empty one counts as not set."""
    names = known_variables()
    document: dict[str, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    faults = []
    for name, text in sorted(environ.items()):
        if not name.startswith(keys.PREFIX) or not text or name in _NO_SETTINGS:
            continue
        key = names.get(name)
        if key is not None:
            origins[key] = name
            _put(document, key, _typed(text, key))
        elif name.startswith(_SECTIONS):
            faults.append(ConfigFault(name, "", unknown(name, names)))
        else:
            warnings.append(f"{name} is not a variable that Jackline knows")
    layer = _checked(document, lambda place: origins.get(plain(place), "environment"), cwd)
    layer.replaces_upstreams = any(key in layer.values for key in _NAMING)
    layer.faults += tuple(faults)
    return layer


def layer_from_flags(flags: Mapping[str, object], cwd: Path) -> Layer:
    """What flags say: by their short names, or by dotted keys; None counts as not given."""
    document: dict[str, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    for name, value in flags.items():
        if value is None or name == keys.FILE_FLAG:
            continue
        key = keys.SHORT_FLAGS.get(name) or keys.undotted(name)
        short = name in keys.SHORT_FLAGS
        origins[key] = f"flag {keys.flag_text(name) if short else name}"
        _put(document, key, str(value) if isinstance(value, Path) else value)
    layer = _checked(document, lambda place: origins.get(plain(place), "flags"), cwd)
    layer.replaces_upstreams = any(key in layer.values for key in _NAMING)
    return layer


def known_variables() -> dict[str, tuple[str, ...]]:
    """Every environment variable that sets something."""
    return {keys.variable_of(key): key for key in defaults()} | keys.SHORT_VARIABLES


# They steer the command line itself, or name the file.
_NO_SETTINGS = (keys.FILE_VARIABLE, "JACKLINE_DEBUG")
_SECTIONS = tuple(f"{keys.PREFIX}{name.upper()}_" for name in Document.model_fields)


def _checked(table: dict[str, Any], where: Callable[[Place], str], folder: Path) -> Layer:
    layer = Layer()
    try:
        document = Document.model_validate(table)
    except ValidationError as error:
        found = error.errors(include_url=False)
        layer.faults += from_validation(found, where)
        wrong = [fault["loc"] for fault in found]
        document = _what_is_right(table, wrong)
        layer.wrong_upstreams = {
            part
            for place in wrong
            if place[0] == "upstream"
            for part in place[1:2]
            if isinstance(part, int)
        }
    for key, value in written(document):
        layer.values[key] = value
        layer.origins[key] = where(key)
    layer.upstreams = [where(("upstream", place)) for place in range(len(document.upstream))]
    _make_absolute(layer, folder)
    return layer


def _what_is_right(table: dict[str, Any], wrong: list[Place]) -> Document:
    """The document without its faults, so that what depends on several keys is judged fairly."""
    rest = copy.deepcopy(table)
    for place in wrong:
        holder: Any = rest
        for part in place[:-1]:
            holder = holder.get(part) if isinstance(holder, dict) else _item(holder, part)
        if isinstance(holder, dict):
            holder.pop(place[-1], None)
    try:
        return Document.model_validate(rest)
    except ValidationError:
        return Document()  # a fault that cannot be cut out: nothing of this source is judged


def _item(holder: object, part: object) -> object:
    return holder[part] if isinstance(holder, list) and isinstance(part, int) else None


def _make_absolute(layer: Layer, folder: Path) -> None:
    for key, value in layer.values.items():
        try:
            if plain(key) in _PATHS:
                layer.values[key] = str(path_from(folder, value))
            elif may_be_secret(key):
                layer.values[key] = anchored(value, folder)
        except ValueError as error:
            layer.faults += (ConfigFault(layer.origins[key], dotted(key), str(error)),)


def _line_number(fault: ConfigFault) -> int:
    number = fault.where.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0


def _put(document: dict[str, Any], key: tuple[str, ...], value: object) -> None:
    """Put a value where the document has it; of upstreams, into the first."""
    table = document
    for part in key[:-1]:
        inner = table.setdefault(part, [{}] if table is document and part == "upstream" else {})
        table = inner[0] if isinstance(inner, list) else inner
    table[key[-1]] = value


def _typed(text: str, key: Key) -> object:
    """What a variable's text means where something else than text is wanted; else the text."""
    text = text.strip()
    info = field_of(key)
    annotation = None if info is None else info.annotation
    if get_origin(annotation) is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if annotation is bool and text.lower() in (*_TRUE, *_FALSE):
        return text.lower() in _TRUE
    if annotation is int or annotation is float:
        try:
            return int(text) if annotation is int else float(text)
        except ValueError:
            return text  # the document says what is wrong with it
    return text


@dataclass(slots=True)
class MergedLayers:
    """What holds so far, and where each value stands."""

    values: dict[Key, Any] = field(default_factory=dict)
    origins: dict[Key, str] = field(default_factory=dict)
    faults: list[ConfigFault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # Where each upstream stands, and which of them have faults already.
    upstreams: list[str] = field(default_factory=list)
    wrong_upstreams: set[int] = field(default_factory=set)

    def take(self, layer: Layer) -> None:
        """Let a stronger source have its way."""
        self.faults += layer.faults
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
        """Say what holds where no source has said anything."""
        if key not in self.values:
            self.values[key] = value
            self.origins[key] = origin

    def fault(self, key: Key, what: str) -> None:
        """Note what is wrong with this key, at the place where it or its upstream stands."""
        self.faults.append(ConfigFault(self.place(key), dotted(key), what))

    def place(self, key: Key) -> str:
        """Where this key stands, or else the upstream that lacks it."""
        if self.is_filled_in(key) and key[0] == "upstream" and isinstance(key[1], int):
            return self.upstreams[key[1]]
        return self.origins.get(key, "default")

    def is_filled_in(self, key: Key) -> bool:
        """Whether no source has said anything of this key."""
        origin = self.origins.get(key, "default")
        return origin == "default" or origin.startswith("preset ")

    def table(self, *under: str | int) -> dict[str, Any]:
        """The set values directly in this table, None left out."""
        return {
            str(key[-1]): value
            for key, value in self.values.items()
            if key[:-1] == under and value is not None
        }
