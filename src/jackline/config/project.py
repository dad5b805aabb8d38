"""Decide what a project's file may set, and remember which files the user has agreed to.

Rules: (1) what a project's file may do with a setting is declared by the setting (`InProject`);
nothing declared is nothing allowed; (2) limits can only be lowered and lists only extended,
compared with the settings without the file, and a model that a limit in dollars could not count is
no way around it; (3) the list of upstreams counts whole or not at all; (4) nothing in a project's
file stops the work: what does not count is ignored, and one line says so without quoting the file;
(5) an agreement names a file by its real folder and its name, and its content by a SHA-256; any
other content is not agreed to; (6) the record is in the user's own state folder, private, and every
entry is signed with the installation's key; a record that cannot be trusted counts as none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from jackline.agents.prices import price_of
from jackline.config.declaration import DEFAULTS, may_be_reference, setting_at
from jackline.config.faults import ConfigFault
from jackline.config.files import FileText
from jackline.config.keys import Key, dotted, plain
from jackline.config.layers import Layer
from jackline.config.references import file_of
from jackline.private_files import (
    check_private_folder,
    installation_key,
    is_signature,
    make_private_folder,
    quoted,
    read_private,
    signature,
    write_private,
)
from jackline.settings import LONGEST_MORE, MOST_MORE, InProject

CONSENT_FILE = "trusted-projects.json"
_SCHEMA = "jackline.trusted-projects/1"
_PURPOSE = "jackline trust/1"


class ConsentStatus(Enum):
    """Whether the user agreed to what a project's file says now."""

    AGREED = "agreed"
    CHANGED = "changed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Consent:
    """One file that the user agreed to."""

    path: str
    sha256: str
    # When, as seconds since 1970.
    at: float


class ConsentRecord:
    """The files that the user agreed to; `folder` is the user's own state folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / CONSENT_FILE

    def status(self, file: FileText) -> ConsentStatus:
        """Whether the user agreed to this content of this file."""
        if not self._path.exists():
            return ConsentStatus.UNKNOWN  # without looking for the key: most users have no record
        path = _real_path(file.path)
        agreed = [each for each in self.entries() if each.path == path]
        if not agreed:
            return ConsentStatus.UNKNOWN
        same = agreed[-1].sha256 == file.digest
        return ConsentStatus.AGREED if same else ConsentStatus.CHANGED

    def entries(self) -> list[Consent]:
        """All agreements that this installation has recorded."""
        try:
            check_private_folder(self._folder)
            entries = json.loads(read_private(self._path))["projects"]
            key = installation_key()
            return [
                Consent(entry["path"], entry["sha256"], float(entry["at"]))
                for entry in entries
                if is_signature(key, entry["signature"], _PURPOSE, *_signed(entry))
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []

    def agree(self, file: FileText, at: float) -> None:
        """Record that the user agrees to this content; OSError when that cannot be private."""
        path = _real_path(file.path)
        others = [each for each in self.entries() if each.path != path]
        self._write([*others, Consent(path, file.digest, at)])

    def revoke(self, path: Path) -> bool:
        """Forget the agreement to this file; whether there was one."""
        entries, real = self.entries(), _real_path(path)
        others = [each for each in entries if each.path != real]
        if len(others) < len(entries):
            self._write(others)
        return len(others) < len(entries)

    def _write(self, consents: list[Consent]) -> None:
        make_private_folder(self._folder)
        key = installation_key()
        entries: list[dict[str, object]] = []
        for each in consents:
            entry: dict[str, object] = {"path": each.path, "sha256": each.sha256, "at": each.at}
            entries.append({**entry, "signature": signature(key, _PURPOSE, *_signed(entry))})
        document = {"schema": _SCHEMA, "projects": entries}
        write_private(self._path, json.dumps(document, indent=2).encode() + b"\n")


def _real_path(path: Path) -> str:
    # By its real folder: `file:` references in it are looked up there.
    return str(path.parent.resolve() / path.name)


def _signed(entry: dict[str, object]) -> tuple[bytes, bytes]:
    return str(entry["path"]).encode("utf-8", "surrogateescape"), str(entry["sha256"]).encode()


_UPSTREAM = "upstream"
# So many can be looked at before they are agreed to.
_MOST_UPSTREAMS = 32


@dataclass(frozen=True, slots=True)
class IgnoredSettings:
    """What of a project's file does not count, by reason; names are those of settings."""

    # Only the user may set them.
    closed: tuple[str, ...] = ()
    # Limits that are not lower than the user's own.
    looser: tuple[str, ...] = ()
    # Lists with more, or longer, entries than a project's file may add.
    too_long: tuple[str, ...] = ()
    # Models without a known price, while a limit in dollars holds.
    unpriced: tuple[str, ...] = ()
    # Why its upstreams would be refused even if the user agreed to them.
    refused: tuple[str, ...] = ()
    faults: tuple[ConfigFault, ...] = ()
    # Whether it lists upstreams that the user has not agreed to, in this content.
    asks: ConsentStatus | None = None

    def warning(self, path: Path, own_file: Path) -> str | None:
        """One line about all that does not count; None if all does."""
        trust = f"jackline trust {quoted(str(path))}"
        parts = []
        if self.closed:
            belong = "it belongs" if len(self.closed) == 1 else "they belong"
            parts.append(f"{', '.join(self.closed)} ({belong} in your own file, {own_file})")
        if self.looser:
            parts.append(f"{', '.join(self.looser)} (not stricter than without it)")
        if self.too_long:
            parts.append(
                f"{', '.join(self.too_long)} (more than {MOST_MORE} entries, or one of more than"
                f" {LONGEST_MORE} characters)"
            )
        if self.unpriced:
            whose = "its price is" if len(self.unpriced) == 1 else "their prices are"
            parts.append(
                f"{', '.join(self.unpriced)} ({whose} not known, and you have a limit in dollars;"
                " set [prices] or the model in your own file)"
            )
        if self.asks is not None:
            if self.refused:
                why = f"refused; {trust} says why"
            elif self.asks is ConsentStatus.CHANGED:
                why = f"changed since you agreed to it; look again: {trust}"
            else:
                why = f"you have not agreed to it; look and agree: {trust}"
            parts.append(f"{_UPSTREAM} ({why})")
        if self.faults:
            many = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
            parts.append(f"what has faults ({many}; see them: {trust} --dry-run)")
        if not parts:
            return None
        return f"{plain_ascii(str(path))} is a project's file; ignored in it: {'; '.join(parts)}"


def rule_of(key: Key) -> InProject:
    """What a project's file may do with this setting."""
    found = setting_at(key)
    return InProject.NEVER if found is None else found[1].setting.in_project


def restrict(
    layer: Layer,
    file: FileText,
    holds: Mapping[Key, Any],
    consent: ConsentStatus,
    *,
    in_dollars: bool,
) -> tuple[Layer, IgnoredSettings]:
    """What counts of a project's file, and what does not; `holds` is what counts without it.

    `in_dollars` is whether any limit in dollars holds without it.
    """
    allowed = Layer()
    closed: list[str] = []
    looser: list[str] = []
    too_long: list[str] = []
    unpriced: list[str] = []
    own_prices = [str(key[1]) for key in holds if key[0] == "prices"]
    for key, value in layer.values.items():
        if key[0] == _UPSTREAM:
            continue
        rule = rule_of(key)
        found = setting_at(key)
        # Of a table of free names only the table's name is shown, since the rest is the file's.
        name = dotted(plain(key) if found is None else found[0])
        before = holds.get(key, DEFAULTS.get(plain(key)))
        if rule is InProject.FREE:
            allowed.values[key] = value
        elif rule is InProject.PRICED:
            if (
                not in_dollars
                or price_of(value) is not None
                or any(fnmatchcase(value, each) for each in own_prices)
            ):
                allowed.values[key] = value
            else:
                unpriced.append(name)
        elif rule is InProject.MORE and (
            len(value) <= MOST_MORE and all(len(each) <= LONGEST_MORE for each in value)
        ):
            allowed.values[key] = list(dict.fromkeys([*before, *value]))
        elif rule is InProject.LOWER and (before is None or value <= before):
            allowed.values[key] = value
        else:
            ignored = {InProject.LOWER: looser, InProject.MORE: too_long}.get(rule, closed)
            ignored.append(name)
    allowed.origins = {key: layer.origins[key] for key in allowed.values}
    refused = tuple(_refusals(layer, file.path.parent))
    asks = None
    if layer.replaces_upstreams or any(fault.key.startswith(_UPSTREAM) for fault in layer.faults):
        is_whole = not refused and not layer.faults
        if consent is ConsentStatus.AGREED and is_whole:
            upstream = {key: value for key, value in layer.values.items() if key[0] == _UPSTREAM}
            allowed.values |= upstream
            allowed.origins |= {key: layer.origins[key] for key in upstream}
            allowed.upstreams = layer.upstreams
            allowed.replaces_upstreams = layer.replaces_upstreams
        else:
            asks = consent
    return allowed, IgnoredSettings(
        closed=tuple(sorted(set(closed))),
        looser=tuple(sorted(set(looser))),
        too_long=tuple(sorted(too_long)),
        unpriced=tuple(sorted(unpriced)),
        refused=refused,
        faults=tuple(layer.faults),
        asks=asks,
    )


def plain_ascii(text: str) -> str:
    """The text in plain ASCII: a stranger's letters could look like others, or move the cursor."""
    return "".join(
        letter if " " <= letter <= "~" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _refusals(layer: Layer, folder: Path) -> list[str]:
    """What no agreement allows a project's upstreams to do."""
    found = []
    inside = folder.resolve()
    if len(layer.upstreams) > _MOST_UPSTREAMS:
        found.append(
            f"{len(layer.upstreams)} upstreams are more than the {_MOST_UPSTREAMS} that a project's"
            " file may list"
        )
    for key, value in layer.values.items():
        if key[0] != _UPSTREAM:
            continue
        name = plain_ascii(dotted(key))
        if rule_of(key) is not InProject.CONSENT:
            found.append(f"{name}: only your own file may set it")
        elif may_be_reference(key) and value.startswith("cmd:"):
            found.append(f"{name}: a command is not run for a project's file")
        elif may_be_reference(key) and not (file_of(value) or inside).resolve().is_relative_to(
            inside
        ):
            # Else a repository could have any file of this user sent to its own server.
            found.append(f"{name}: a file outside the project is not sent for a project's file")
    return found
