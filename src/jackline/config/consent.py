"""Remember which project files the user has agreed to, each in exactly one content.

Rules: (1) an agreement names a file by its real folder and its name, and its content by a SHA-256;
any other content, and the same content reached by a link from elsewhere, is not agreed to; (2) the
record lies in the user's own state folder whatever `state` says, private, and every entry is signed
with the installation's key; (3) a record that cannot be trusted counts as none: reading never
fails. What an agreement allows is in project.py.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from jackline.config.places import FileText
from jackline.private_files import (
    check_private_folder,
    installation_key,
    is_signature,
    make_private_folder,
    read_private,
    signature,
    write_private,
)

FILE = "trusted-projects.json"
_SCHEMA = "jackline.trusted-projects/1"
_PURPOSE = "jackline trust/1"


class Standing(Enum):
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


def standing_of(file: FileText, folder: Path) -> Standing:
    """Whether the user agreed to this content of this file; `folder` is that of the record."""
    if not (folder / FILE).exists():
        return Standing.UNKNOWN  # without looking for the key: most users have no such record
    path = real_path(file.path)
    mine = [each for each in consents(folder) if each.path == path]
    if not mine:
        return Standing.UNKNOWN
    return Standing.AGREED if mine[-1].sha256 == digest(file) else Standing.CHANGED


def consents(folder: Path) -> list[Consent]:
    """All agreements that this installation has recorded."""
    try:
        check_private_folder(folder)
        document = json.loads(read_private(folder / FILE))
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
    write_private(folder / FILE, json.dumps(document, indent=2).encode() + b"\n")


def _signed(entry: dict[str, object]) -> tuple[bytes, bytes]:
    return str(entry["path"]).encode("utf-8", "surrogateescape"), str(entry["sha256"]).encode()
