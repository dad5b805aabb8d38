"""Decide which settings of a project's file count: a cloned repository's file is a stranger's.

Rules: (1) what a project's file may do with a setting is declared by the setting (`InProject`);
nothing declared is nothing allowed; (2) limits can only be lowered and lists only extended,
compared with what holds without the file; (3) the list of upstreams counts whole or not at all:
without its credential or proxy, an upstream would be another one than was agreed to; (4) nothing
that stands in a project's file stops the work: what does not count is ignored, and one line says
so; it quotes no text of the file. Whether the user agreed is in consent.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackline.config.consent import Standing
from jackline.config.document import Document, defaults, table_class
from jackline.config.faults import Fault
from jackline.config.keys import Key, dotted, plain
from jackline.config.layers import Layer, may_be_secret
from jackline.config.places import FileText
from jackline.config.references import file_of
from jackline.config.table import InProject, Table
from jackline.private_files import quoted

_UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class Ignored:
    """What of a project's file does not count, by reason; names are those of settings."""

    # Only the user may set them.
    closed: tuple[str, ...] = ()
    # Limits that are not lower than the user's own.
    looser: tuple[str, ...] = ()
    # Why its upstreams would be refused even if the user agreed to them.
    refused: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    # Whether it lists upstreams that the user has not agreed to, in this content.
    asks: Standing | None = None


def rule_of(key: Key) -> InProject:
    """What a project's file may do with this setting."""
    table: type[Table] = Document
    for name in plain(key):
        inner = table_class(table, name)
        if inner is None:
            info = table.model_fields.get(name)
            marks = () if info is None else info.metadata
            return next((mark for mark in marks if isinstance(mark, InProject)), InProject.NEVER)
        table = inner
    return InProject.NEVER


def restrict(
    layer: Layer, file: FileText, holds: Mapping[Key, Any], standing: Standing
) -> tuple[Layer, Ignored]:
    """What counts of a project's file, and what does not; `holds` is what counts without it."""
    taken = Layer()
    closed: list[str] = []
    looser: list[str] = []
    for key, value in layer.values.items():
        if key[0] == _UPSTREAM:
            continue
        rule = rule_of(key)
        before = holds.get(key, defaults().get(plain(key)))
        if rule is InProject.FREE:
            taken.values[key] = value
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
        if standing is Standing.AGREED and is_whole:
            _take_upstreams(taken, layer)
        else:
            asks = standing
    return taken, Ignored(
        tuple(sorted(set(closed))), tuple(sorted(set(looser))), refused, layer.faults, asks
    )


def warning(path: Path, ignored: Ignored, own_file: Path) -> str | None:
    """One line about all that does not count; None if all does."""
    trust = f"jackline trust {quoted(str(path))}"
    parts = []
    if ignored.closed:
        belong = "it belongs" if len(ignored.closed) == 1 else "they belong"
        parts.append(f"{', '.join(ignored.closed)} ({belong} in your own file, {own_file})")
    if ignored.looser:
        parts.append(f"{', '.join(ignored.looser)} (not stricter than without it)")
    if ignored.asks is not None:
        if ignored.refused:
            why = f"refused; {trust} says why"
        elif ignored.asks is Standing.CHANGED:
            why = f"changed since you agreed to it; look again: {trust}"
        else:
            why = f"you have not agreed to it; look and agree: {trust}"
        parts.append(f"{_UPSTREAM} ({why})")
    if ignored.faults:
        many = "1 fault" if len(ignored.faults) == 1 else f"{len(ignored.faults)} faults"
        parts.append(f"what has faults ({many}; see them: {trust} --dry-run)")
    if not parts:
        return None
    return f"{printable(str(path))} is a project's file; ignored in it: {'; '.join(parts)}"


def printable(text: str) -> str:
    """The text in plain ASCII: a stranger's letters could look like others, or move the cursor."""
    return "".join(
        letter if " " <= letter <= "~" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _refusals(layer: Layer, folder: Path) -> list[str]:
    """What no agreement allows a project's upstreams to do."""
    found = []
    for key, value in layer.values.items():
        if key[0] != _UPSTREAM:
            continue
        name = printable(dotted(key))
        if rule_of(key) is not InProject.CONSENT:
            found.append(f"{name}: only your own file may set it")
        elif may_be_secret(key) and value.startswith("cmd:"):
            found.append(f"{name}: a command is not run for a project's file")
        elif may_be_secret(key) and not _is_inside(file_of(value), folder):
            # Else a repository could have any file of this user sent to its own server.
            found.append(f"{name}: a file outside the project is not sent for a project's file")
    return found


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
    table: type[Table] = Document
    path: list[str] = []
    for name in plain(key):
        path.append(name)
        inner = table_class(table, name)
        if inner is None:
            break
        table = inner
    return dotted(path)
