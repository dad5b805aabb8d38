"""Find the transcripts that a client's model may ask `why` about.

Rules: (1) a session is seen by where it was begun, as its own transcript tells; one that does not
tell is not seen; (2) a file or folder is read inside the folders that the client sees, or as part
of a session that it sees; links are followed before judging, and what they lead to is judged, too;
(3) whatever is not seen is unknown, ids and places included; (4) a word is an id unless it is
written as a path, and then one seen from the client's folder, never from the service's; (5) of a
folder so many entries are looked at, and no more.
Not here: reading transcripts (autopsy/), which folders a client sees (places.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

import msgspec

from jackline.autopsy import sources
from jackline.autopsy.records import decode
from jackline.autopsy.sources import Source
from jackline.autopsy.stores import Session, Stores
from jackline.errors import NothingFoundError, UnreadableError
from jackline.foreign_files import read_beginning
from jackline.mcp_server.places import Sight

_BEGINNING = 256 << 10
_MOST_ENTRIES = 20_000


class _Payload(msgspec.Struct):
    cwd: str | None = None


class _Line(msgspec.Struct):
    """A line of Claude Code's tells its folder itself, one of Codex's in its payload."""

    cwd: str | None = None
    payload: _Payload = msgspec.field(default_factory=_Payload)


_LINES = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class SeenStores(Stores):
    """The stores of the user's clients, with the sessions that one client sees."""

    sees: Sight

    @classmethod
    def of_user(cls, home: Path, environment: Mapping[str, str], sees: Sight) -> SeenStores:
        """Those of the user with this home."""
        every = Stores.of(home, environment)
        return cls(every.claude, every.codex, sees)

    def sessions(self) -> list[Session]:
        """The sessions that are seen, of both clients."""
        every = Stores(self.claude, self.codex).sessions()
        return [session for session in every if self.sees(_folder_of_session(session))]

    def found(self, target: Path | str | None) -> list[Source]:
        """The files to read, by a path or an id; UnreadableError when none are seen."""
        try:
            if isinstance(target, Path):
                found = sources.find_path(target, most=_MOST_ENTRIES)
            elif target is not None:
                found = sources.find_id(target, stores=self)
            else:
                found = sources.find([], stores=self)
        except (NothingFoundError, UnreadableError):
            _unknown(target)
        of_sessions = {path.resolve() for session in self.sessions() for path in session.files()}
        seen = [
            source
            for source in found
            if (real := source.path.resolve()) in of_sessions or self.sees(str(real))
        ]
        return seen or _unknown(target)


def seen_target(word: str, client: Path | None, stores: SeenStores) -> Path | str:
    """What was named: an id, or the path of something that may be seen; else UnreadableError."""
    try:
        named = Path(word).expanduser()
        if len(named.parts) < 2 and not named.suffix:
            # Every id begins with no letters at all.
            return word if word.strip("./\\") else _unknown(word)
        path = (client or Path("/")) / named
        real = path.resolve()
    except (OSError, RuntimeError, ValueError):
        _unknown(word)
    kept = any(real.is_relative_to(each.resolve()) for each in (stores.claude, stores.codex))
    return path if kept or stores.sees(str(real)) else _unknown(word)


def _unknown(target: Path | str | None) -> NoReturn:
    raise UnreadableError(
        "There is no session of this project."
        if target is None
        else f"No session, run or agent of this project has the id {str(target)!r}.",
        next="The user can look at other projects' in a terminal: jackline why ID",
    )


def _folder_of_session(session: Session) -> str | None:
    files = [session.main] if session.main is not None else session.files()
    return next((folder for file in files if (folder := _folder_told(file))), None)


def _folder_told(file: Path) -> str | None:
    try:
        return _told_by(file, file.stat().st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=8_192)
def _told_by(file: Path, _changed: int) -> str | None:
    """Where the session was begun, as the first line that tells it says."""
    for line in read_beginning(file, _BEGINNING).splitlines():
        record = decode(_LINES, memoryview(line))
        if record is not None and (folder := record.cwd or record.payload.cwd):
            return folder
    return None
