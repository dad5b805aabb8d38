"""The tools `status` and `why`: what blocks model calls now, and what stopped an agent.

Rules: (1) both only read; (2) the texts are those of the command line and the page; (3) prompts,
answers and tool output stay hidden.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import NoReturn, cast

import msgspec

from jackline.autopsy import report, text_report
from jackline.batches.threads import SharedPlaces
from jackline.clock import Clock
from jackline.errors import NothingFoundError, UnreadableError
from jackline.events import Event
from jackline.foreign_files import read_beginning
from jackline.mcp_server.model_tool import JsonObject, ModelTool, ToolCaller, ToolReply
from jackline.mcp_server.permissions import AgentSettings, Sight
from jackline.outside_names import LONGEST_PATH, cut_name, is_long_path
from jackline.transcripts import reader, sources
from jackline.transcripts.records import decode
from jackline.transcripts.sources import ClientFolders, Source, StoredSession

_BEGINNING = 256 << 10
_MOST_ENTRIES = 20_000


class _Payload(msgspec.Struct):
    cwd: str | None = None


class _Line(msgspec.Struct):
    """A line of Claude Code's names its folder itself, one of Codex's in its payload."""

    cwd: str | None = None
    payload: _Payload = msgspec.field(default_factory=_Payload)


_LINES = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class SeenStores(ClientFolders):
    """The stores of the user's clients, with the sessions that one client sees."""

    sees: Sight

    @classmethod
    def of_user(cls, home: Path, environment: Mapping[str, str], sees: Sight) -> SeenStores:
        """Those of the user with this home."""
        every = ClientFolders.of(home, environment)
        return cls(every.claude, every.codex, sees)

    def sessions(self) -> list[StoredSession]:
        """The sessions that are seen, of both clients."""
        every = ClientFolders(self.claude, self.codex).sessions()
        return [session for session in every if self.sees(_folder_of_session(session))]

    def target(self, word: str, client: Path | None) -> Path | str:
        """What was named: an id, or the path of something that may be seen; else UnreadableError.

        `client` is the folder of the client.
        It looks at the disk: to be called in a thread.
        """
        if is_long_path(word):
            _unknown(word)
        try:
            named = Path(word).expanduser()
            if len(named.parts) < 2 and not named.suffix:
                # Every id begins with no letters at all.
                return word if word.strip("./\\") else _unknown(word)
            path = (client or Path("/")) / named
            real = path.resolve()
        except (OSError, RuntimeError, ValueError):
            _unknown(word)
        stored = any(real.is_relative_to(each.resolve()) for each in (self.claude, self.codex))
        return path if stored or self.sees(str(real)) else _unknown(word)

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


def _unknown(target: Path | str | None) -> NoReturn:
    shown = None if target is None else cut_name(str(target))
    raise UnreadableError(
        "There is no session of this project."
        if target is None
        else f"No session, run or agent of this project has the id {shown!r}.",
        hint="The user can look at other projects' in a terminal: jackline why ID",
    )


def _folder_of_session(session: StoredSession) -> str | None:
    for file in [session.main] if session.main is not None else session.files():
        with suppress(OSError):
            if folder := _folder_in(file, file.stat().st_mtime_ns):
                return folder
    return None


@lru_cache(maxsize=8_192)
def _folder_in(file: Path, _changed: int) -> str | None:
    """Where the session was begun, as the first line that names it says."""
    for line in read_beginning(file, _BEGINNING).splitlines():
        record = decode(_LINES, memoryview(line))
        if record is not None and (folder := record.cwd or record.payload.cwd):
            return folder
    return None


_WIDTH = 100
_MOST_WAITING = 10
_reading = SharedPlaces(2)
_ACTED_UPON = ("verdict", "agents_total", "agents_by_fate", "resume")


def status_tools(
    status: Callable[[], Mapping[str, object]], settings: Callable[[], AgentSettings], clock: Clock
) -> list[ModelTool]:
    """Both tools; `status` draws the picture of now."""
    return [_status_tool(status), _why_tool(settings, clock)]


def _status_tool(status: Callable[[], Mapping[str, object]]) -> ModelTool:
    async def run(_arguments: JsonObject, _caller: ToolCaller) -> ToolReply:
        now = status()
        lines = [str(now["verdict"])]
        for lane in cast("list[dict[str, object]]", now["lanes"]):
            why = f": {lane['why']}" if lane["why"] else ""
            lines.append(
                f"{lane['name']} is {lane['state']}, {lane['in_flight']} in flight,"
                f" {lane['waiting']} waiting{why}"
            )
        lines += [str(note) for note in cast("list[str]", now.get("notes") or [])]
        waiting = cast("list[object]", now.get("waiting") or [])[:_MOST_WAITING]
        return ToolReply("\n".join(lines), {**now, "waiting": waiting})

    return ModelTool(
        "status",
        "Tells in one sentence how model calls get through right now: which limits, quota walls or"
        " outages stand in the way, until when, and how long the subscription's window will last at"
        " the present pace. Ask before starting many agents, and after one was cut off.",
        {"type": "object", "properties": {}, "additionalProperties": False},
        run,
        read_only=True,
    )


def _why_tool(settings: Callable[[], AgentSettings], clock: Clock) -> ModelTool:
    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        named = arguments.get("id")
        sees = settings().sight_of(caller.folder)
        stores = SeenStores.of_user(Path.home(), os.environ, sees)
        given_up = threading.Event()
        reading_it = partial(_autopsy, named, caller.folder, stores, clock, given_up)
        try:
            async with asyncio.timeout(settings().wait):
                return await _reading.in_thread(reading_it, "jackline-why")
        except TimeoutError:
            raise UnreadableError(
                "It takes too long to read all of that.",
                hint="Name one session, sub-agent or transcript. The user can look in a terminal:"
                " jackline why ID",
            ) from None
        finally:
            given_up.set()

    return ModelTool(
        "why",
        "Finds the root cause when a session, workflow or sub-agent of Claude Code or Codex died,"
        " came back empty or was cut off: what was met, when, how often, what was finished, and how"
        " to resume. Without an id it looks at the newest session of this project.",
        {
            "type": "object",
            "properties": {
                "id": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": LONGEST_PATH,
                    "description": "A session, workflow or sub-agent id (its beginning is enough),"
                    " or the path of a transcript.",
                }
            },
            "additionalProperties": False,
        },
        run,
        read_only=True,
    )


def _autopsy(
    named: object,
    client: Path | None,
    stores: SeenStores,
    clock: Clock,
    given_up: threading.Event,
) -> ToolReply:
    target = None if named is None else stores.target(str(named), client)

    def go_on(_event: Event) -> None:
        if given_up.is_set():
            raise UnreadableError("Nobody waits for it any more.")

    found = stores.found(target)
    evidence = reader.read(found, announce=go_on)
    answer = report.build(evidence, now=clock.now())
    text = text_report.render(answer, width=_WIDTH, paint=text_report.unpainted)
    document = cast("JsonObject", msgspec.to_builtins(answer.to_json()))
    # Of a success, Claude Code shows its model the data alone, and cuts what is long: so the words,
    # and what can be acted upon; `jackline why --json` has all of it.
    return ToolReply(text, {"says": text} | {name: document[name] for name in _ACTED_UPON})
