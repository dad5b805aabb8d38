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

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from jackline.agents.prices import price_of
from jackline.config.declaration import DEFAULTS, may_be_reference, setting_at
from jackline.config.document import ConfigFault
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
from jackline.settings import InProject

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


def consent_status(file: FileText, folder: Path) -> ConsentStatus:
    """Whether the user agreed to this content of this file; `folder` is that of the record."""
    if not (folder / CONSENT_FILE).exists():
        return ConsentStatus.UNKNOWN  # without looking for the key: most users have no such record
    path = real_path(file.path)
    mine = [each for each in consents(folder) if each.path == path]
    if not mine:
        return ConsentStatus.UNKNOWN
    return ConsentStatus.AGREED if mine[-1].sha256 == digest(file) else ConsentStatus.CHANGED


def consents(folder: Path) -> list[Consent]:
    """All agreements that this installation has recorded."""
    try:
        check_private_folder(folder)
        document = json.loads(read_private(folder / CONSENT_FILE))
        key = installation_key()
        entries = document["projects"]
        return [
            Consent(entry["path"], entry["sha256"], float(entry["at"]))
            for entry in entries
            if is_signature(key, entry["signature"], _PURPOSE, *_signed(entry))
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def agree(file: FileText, folder: Path, at: float) -> Consent:
    """Record that the user agrees to this content; OSError when it cannot be kept privately."""
    given = Consent(real_path(file.path), digest(file), at)
    _write([*_others(given.path, folder), given], folder)
    return given


def revoke(path: Path, folder: Path) -> bool:
    """Forget the agreement to this file; whether there was one."""
    others = _others(real_path(path), folder)
    if len(others) == len(consents(folder)):
        return False
    _write(others, folder)
    return True


def digest(file: FileText) -> str:
    """What stands for the file's content."""
    return hashlib.sha256(file.content).hexdigest()


def real_path(path: Path) -> str:
    """The file's name in its real folder: `file:` references in it are looked up in that folder."""
    return str(path.parent.resolve() / path.name)


def _others(path: str, folder: Path) -> list[Consent]:
    return [each for each in consents(folder) if each.path != path]


def _write(given: list[Consent], folder: Path) -> None:
    make_private_folder(folder)
    key = installation_key()
    entries = []
    for each in given:
        entry: dict[str, object] = {"path": each.path, "sha256": each.sha256, "at": each.at}
        entries.append({**entry, "signature": signature(key, _PURPOSE, *_signed(entry))})
    document = {"schema": _SCHEMA, "projects": entries}
    write_private(folder / CONSENT_FILE, json.dumps(document, indent=2).encode() + b"\n")


def _signed(entry: dict[str, object]) -> tuple[bytes, bytes]:
    return str(entry["path"]).encode("utf-8", "surrogateescape"), str(entry["sha256"]).encode()


_UPSTREAM = "upstream"
# So many can be looked at before they are agreed to.
_MOST_UPSTREAMS = 32
_IN_DOLLARS = (("budget", "dollars"), ("budget", "rolling", "dollars"), ("resume", "spend"))


@dataclass(frozen=True, slots=True)
class IgnoredSettings:
    """What of a project's file does not count, by reason; names are those of settings."""

    # Only the user may set them.
    closed: tuple[str, ...] = ()
    # Limits that are not lower than the user's own.
    looser: tuple[str, ...] = ()
    # Models without a known price, while a limit in dollars holds.
    unpriced: tuple[str, ...] = ()
    # Why its upstreams would be refused even if the user agreed to them.
    refused: tuple[str, ...] = ()
    faults: tuple[ConfigFault, ...] = ()
    # Whether it lists upstreams that the user has not agreed to, in this content.
    asks: ConsentStatus | None = None


def rule_of(key: Key) -> InProject:
    """What a project's file may do with this setting."""
    found = setting_at(key)
    return InProject.NEVER if found is None else found[1].setting.in_project


def has_limit_in_dollars(values: Mapping[Key, Any]) -> bool:
    """Whether one of these settings limits what may be spent, in dollars."""
    return any(values.get(key) is not None for key in _IN_DOLLARS)


def restrict(
    layer: Layer,
    file: FileText,
    holds: Mapping[Key, Any],
    standing: ConsentStatus,
    *,
    in_dollars: bool,
) -> tuple[Layer, IgnoredSettings]:
    """What counts of a project's file, and what does not; `holds` is what counts without it.

    `in_dollars` is whether any limit in dollars holds without it.
    """
    taken = Layer()
    closed: list[str] = []
    looser: list[str] = []
    unpriced: list[str] = []
    for key, value in layer.values.items():
        if key[0] == _UPSTREAM:
            continue
        rule = rule_of(key)
        before = holds.get(key, DEFAULTS.get(plain(key)))
        if rule is InProject.FREE:
            taken.values[key] = value
        elif rule is InProject.PRICED:
            if not in_dollars or _has_price(value, holds):
                taken.values[key] = value
            else:
                unpriced.append(_name(key))
        elif rule is InProject.MORE:
            taken.values[key] = list(dict.fromkeys([*before, *value]))
        elif rule is InProject.LOWER and (before is None or value <= before):
            taken.values[key] = value
        else:
            (looser if rule is InProject.LOWER else closed).append(_name(key))
    taken.origins = {key: layer.origins[key] for key in taken.values}
    refused = tuple(_refusals(layer, file.path.parent))
    asks = None
    if layer.replaces_upstreams or any(fault.key.startswith(_UPSTREAM) for fault in layer.faults):
        is_whole = not refused and not layer.faults
        if standing is ConsentStatus.AGREED and is_whole:
            _take_upstreams(taken, layer)
        else:
            asks = standing
    return taken, IgnoredSettings(
        closed=tuple(sorted(set(closed))),
        looser=tuple(sorted(set(looser))),
        unpriced=tuple(sorted(unpriced)),
        refused=refused,
        faults=tuple(layer.faults),
        asks=asks,
    )


def warning(path: Path, ignored: IgnoredSettings, own_file: Path) -> str | None:
    """One line about all that does not count; None if all does."""
    trust = f"jackline trust {quoted(str(path))}"
    parts = []
    if ignored.closed:
        belong = "it belongs" if len(ignored.closed) == 1 else "they belong"
        parts.append(f"{', '.join(ignored.closed)} ({belong} in your own file, {own_file})")
    if ignored.looser:
        parts.append(f"{', '.join(ignored.looser)} (not stricter than without it)")
    if ignored.unpriced:
        whose = "its price is" if len(ignored.unpriced) == 1 else "their prices are"
        parts.append(
            f"{', '.join(ignored.unpriced)} ({whose} not known, and you have a limit in dollars;"
            " set [prices] or the model in your own file)"
        )
    if ignored.asks is not None:
        if ignored.refused:
            why = f"refused; {trust} says why"
        elif ignored.asks is ConsentStatus.CHANGED:
            why = f"changed since you agreed to it; look again: {trust}"
        else:
            why = f"you have not agreed to it; look and agree: {trust}"
        parts.append(f"{_UPSTREAM} ({why})")
    if ignored.faults:
        many = "1 fault" if len(ignored.faults) == 1 else f"{len(ignored.faults)} faults"
        parts.append(f"what has faults ({many}; see them: {trust} --dry-run)")
    if not parts:
        return None
    return f"{plain_ascii(str(path))} is a project's file; ignored in it: {'; '.join(parts)}"


def plain_ascii(text: str) -> str:
    """The text in plain ASCII: a stranger's letters could look like others, or move the cursor."""
    return "".join(
        letter if " " <= letter <= "~" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _refusals(layer: Layer, folder: Path) -> list[str]:
    """What no agreement allows a project's upstreams to do."""
    found = []
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
        elif may_be_reference(key) and not _is_inside(file_of(value), folder):
            # Else a repository could have any file of this user sent to its own server.
            found.append(f"{name}: a file outside the project is not sent for a project's file")
    return found


def _has_price(model: str, holds: Mapping[Key, Any]) -> bool:
    own = {str(key[1]) for key in holds if key[0] == "prices"}
    return price_of(model) is not None or any(fnmatchcase(model, pattern) for pattern in own)


def _is_inside(path: Path | None, folder: Path) -> bool:
    return path is None or path.resolve().is_relative_to(folder.resolve())


def _take_upstreams(taken: Layer, layer: Layer) -> None:
    for key, value in layer.values.items():
        if key[0] == _UPSTREAM:
            taken.values[key] = value
            taken.origins[key] = layer.origins[key]
    taken.upstreams = layer.upstreams
    taken.replaces_upstreams = layer.replaces_upstreams


def _name(key: Key) -> str:
    """The setting's name; of a table of free names, the table's, since the rest is the file's."""
    found = setting_at(key)
    return dotted(plain(key) if found is None else found[0])
