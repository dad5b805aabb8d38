"""`status` and `why`: what stands in the way now, and what stopped an agent.

Laws: (1) both only read; (2) the words are those of every other face; (3) prompts, answers and
tool output stay hidden; (4) `why` reads sessions of the client's project, and files in it, alone;
(5) reading has threads of its own, which nobody else waits for, and is given up in time.
Not here: judging (control/, autopsy/), whose session is whose (seen_sessions.py).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

from jackline.autopsy import json_face, reading, report, text_face
from jackline.clock import Clock
from jackline.errors import UnreadableError
from jackline.events import Event
from jackline.mcp_server.model_tool import Caller, JsonObject, ModelTool, Told
from jackline.mcp_server.places import sight_of
from jackline.mcp_server.seen_sessions import SeenStores, seen_target
from jackline.mcp_server.settings import AgentSettings

_WIDTH = 100
_MOST_WAITING = 10
_READING = ThreadPoolExecutor(max_workers=2, thread_name_prefix="jackline-why")
_ACTED_UPON = ("verdict", "agents_total", "agents_by_fate", "resume")


def standing_tools(
    status: Callable[[], Mapping[str, object]],
    settings: Callable[[], AgentSettings],
    clock: Clock,
) -> list[ModelTool]:
    """Both tools; `status` draws the picture of now."""
    return [_status_tool(status), _why_tool(settings, clock)]


def _status_tool(status: Callable[[], Mapping[str, object]]) -> ModelTool:
    async def run(_arguments: JsonObject, _caller: Caller) -> Told:
        told = status()
        lines = [str(told["verdict"])]
        for lane in cast("list[dict[str, object]]", told["lanes"]):
            why = f": {lane['why']}" if lane["why"] else ""
            lines.append(
                f"{lane['name']} is {lane['state']}, {lane['in_flight']} in flight,"
                f" {lane['waiting']} waiting{why}"
            )
        lines += [str(note) for note in cast("list[str]", told.get("notes") or [])]
        waiting = cast("list[object]", told.get("waiting") or [])[:_MOST_WAITING]
        return Told("\n".join(lines), {**told, "waiting": waiting})

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
    async def run(arguments: JsonObject, caller: Caller) -> Told:
        given = arguments.get("id")
        stores = SeenStores.of_user(Path.home(), os.environ, sight_of(caller.folder, settings()))
        target = None if given is None else seen_target(str(given), caller.folder, stores)
        given_up = threading.Event()
        reading_it = partial(_autopsy, target, stores, clock, given_up)
        try:
            async with asyncio.timeout(settings().wait):
                return await asyncio.get_running_loop().run_in_executor(_READING, reading_it)
        except TimeoutError:
            raise UnreadableError(
                "It takes too long to read all of that.",
                next="Name one session, sub-agent or transcript. The user can look in a terminal:"
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
    target: Path | str | None, stores: SeenStores, clock: Clock, given_up: threading.Event
) -> Told:
    def go_on(_event: Event) -> None:
        if given_up.is_set():
            raise UnreadableError("Nobody waits for it any more.")

    found = stores.found(target)
    evidence = reading.read(found, announce=go_on)
    told = report.build(evidence, now=clock.now())
    text = text_face.render(told, width=_WIDTH, paint=text_face.unpainted)
    document = cast("JsonObject", msgspec.to_builtins(json_face.document(told)))
    # Of a success, Claude Code shows its model the data alone, and cuts what is long: so the words,
    # and what can be acted upon; `jackline why --json` has all of it.
    return Told(text, {"says": text} | {name: document[name] for name in _ACTED_UPON})
