"""Agents that real clients carry finish, or say truly why not, whatever cuts them off."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from jackline import event_loop
from jackline.agents.outcome import Ending
from jackline.agents.process.child import ProcessMark, is_alive
from jackline.gateway.settings import HoldSettings
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.reply_script import Reply, Say, structured
from tests.agents.process.doubles import FilePages, FreeLeave, Pages
from tests.agents.process.world import World, lines_of, until
from tests.real_clients.clients import claude_binary
from tests.real_clients.codex import codex_binary
from tests.real_clients.old_client import old_claude_binary

pytestmark = [
    pytest.mark.real_client,
    pytest.mark.skipif(os.name == "nt", reason="kill -9 and the shell's words are POSIX"),
]

SCHEMA = {
    "type": "object",
    "properties": {"points": {"type": "integer"}},
    "required": ["points"],
    "additionalProperties": False,
}
CLAUDES = [pytest.param(old_claude_binary, id="2.1.197"), pytest.param(claude_binary, id="2.1.325")]
CLIENTS = [*CLAUDES, pytest.param(codex_binary, id="codex")]
FETCHED = Callable[[], Path]


def shell(command: str, words: str = "I run it.") -> Say:
    """A command, as both clients' models would call it; the other tool's name is not offered."""
    return Say(words, (("Bash", {"command": command, "description": "a step"}),))


def as_codex(reply: Reply) -> Reply:
    """The same reply in the words of a model that Codex asks."""
    if not isinstance(reply, Say) or not reply.calls:
        return reply
    (name, given), *_ = reply.calls
    if name == "StructuredOutput":
        return Say(json.dumps(given))
    call = ("exec_command", {"cmd": given["command"], "yield_time_ms": 30_000})
    return Say(reply.text, (call,))


def world_of(
    fetched: FETCHED, folder: Path, mind: Callable[[ClientRequest], Reply], **more: Any
) -> World:
    codex = fetched is codex_binary
    answering = (lambda asked: as_codex(mind(asked))) if codex else mind
    return World(folder, fetched(), answering, codex, **more)


def run(main: Coroutine[Any, Any, None]) -> None:
    event_loop.run(main)


@pytest.mark.parametrize("fetched", CLIENTS)
def test_an_answer_by_a_schema_is_the_value_and_every_token_is_counted(
    fetched: FETCHED, tmp_path: Path
) -> None:
    def mind(asked: ClientRequest) -> Reply:
        return shell("echo one >> steps") if asked.turn == 0 else structured({"points": 9})

    async def main() -> None:
        pages, leave = Pages(), FreeLeave()
        async with world_of(fetched, tmp_path, mind).open() as world:
            outcome = await world.carry(pages, leave, schema=SCHEMA, system="SYSTEM-WORDS")
            assert (outcome.terminated_by, outcome.value) == (Ending.COMPLETION, {"points": 9})
            assert lines_of(world.project / "steps") == ["one"]
            ledger = world.ledger.summary()
            told = outcome.usage
            assert told == leave.usage
            assert told.output_tokens == ledger["output_tokens"]
            assert told.total - told.output_tokens == ledger["input_tokens"]
            assert outcome.turns == 2
            assert leave.asked == 2, "one leave for each model call"
            assert lines_of(Path(outcome.transcript or ""))
            assert "SYSTEM-WORDS" in json.dumps(dict(world.received[0].body))
            again = await world.carry(pages, leave, schema=SCHEMA)
            assert again.value == outcome.value
            assert len(world.ledger) == 2, "a finished agent is not run again"

    run(main())


@pytest.mark.parametrize("fetched", CLIENTS)
def test_at_a_wall_it_waits_and_goes_on_in_the_same_session_with_nothing_done_twice(
    fetched: FETCHED, tmp_path: Path
) -> None:
    lasts = 3.0
    walls = [Fault(Effect.QUOTA_WALL, until=lasts)]

    def mind(asked: ClientRequest) -> Reply:
        if asked.turn == 0:
            return shell("echo one >> steps")
        if walls:
            # It strikes the very request that is being answered here.
            assert world.server is not None
            world.server.playing.add_fault(walls.pop())
        return Say("All is done.")

    world = world_of(fetched, tmp_path, mind)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        pages, leave = Pages(), FreeLeave()

        async def the_wall_is_gone() -> None:
            over = loop.time() + lasts
            await until(lambda: loop.time() > over)

        leave.at_wall = the_wall_is_gone
        async with world.open():
            outcome = await world.carry(pages, leave)
            assert (outcome.terminated_by, outcome.value) == (Ending.COMPLETION, "All is done.")
            assert leave.walls
            assert lines_of(world.project / "steps") == ["one"]
            assert world.ledger.repeated == 0
            assert len({asked.session for asked in world.received}) == 1
            last = world.received[-1].latest
            assert "usage limit" in last
            assert "do not do it again" in last

    run(main())


@pytest.mark.parametrize("fetched", CLIENTS)
def test_a_client_that_is_killed_in_the_middle_of_a_tool_is_a_crash_and_then_goes_on(
    fetched: FETCHED, tmp_path: Path
) -> None:
    def mind(asked: ClientRequest) -> Reply:
        if "may or may not have run" in asked.latest:
            return Say("I looked, and it is done.")
        if asked.turn == 0:
            return shell("echo one >> steps")
        return shell("touch begun; while true; do sleep 0.2; done # LOST-CALL")

    async def main() -> None:
        pages, leave = Pages(), FreeLeave()
        async with world_of(fetched, tmp_path, mind).open() as world:
            carrying = asyncio.create_task(world.carry(pages, leave))
            await until((world.project / "begun").exists)
            pid = pages.of("process")[-1]["pid"]
            assert isinstance(pid, int)
            os.kill(pid, signal.SIGKILL)
            crashed = await carrying
            assert crashed.terminated_by is Ending.CRASH
            assert "SIGKILL" in crashed.evidence.says
            outcome = await world.carry(pages, leave)
            assert outcome.value == "I looked, and it is done."
            assert lines_of(world.project / "steps") == ["one"]
            told = world.received[-1].latest
            assert "LOST-CALL" in told
            assert "echo one" not in told.partition("may or may not have run")[2]
            assert world.ledger.repeated == 0

    run(main())


def test_when_the_whole_runner_is_killed_the_next_one_goes_on_where_it_was(tmp_path: Path) -> None:
    def mind(asked: ClientRequest) -> Reply:
        if "may or may not have run" in asked.latest:
            return structured({"points": 3})
        if asked.turn == 0:
            return shell("echo one >> steps; git init -q .")
        return shell("touch begun; while true; do sleep 0.2; done # LOST-CALL")

    async def main() -> None:
        world = world_of(claude_binary, tmp_path, mind)
        notebook = tmp_path / "notebook.jsonl"
        async with world.open():
            carrier = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.agents.process.carrying_alone"),
                *(world.url, str(world.folder), str(world.program), json.dumps(SCHEMA)),
            )
            await until((world.project / "begun").exists)
            carrier.kill()
            await carrier.wait()
            pages = FilePages(notebook)
            started = pages.of("process")[-1]
            outcome = await world.carry(pages, FreeLeave(), schema=SCHEMA)
            assert (outcome.terminated_by, outcome.value) == (Ending.COMPLETION, {"points": 3})
            assert not is_alive(ProcessMark(int(str(started["pid"])), str(started["began"])))
            assert lines_of(world.project / "steps") == ["one"]
            told = world.received[-1].latest
            assert "LOST-CALL" in told
            assert "?? steps" in told, "what is on disk is told"
            assert world.ledger.repeated == 0

    run(main())


@pytest.mark.parametrize("fetched", [CLAUDES[1], CLIENTS[2]])
def test_a_cancelled_agent_leaves_no_process_behind(fetched: FETCHED, tmp_path: Path) -> None:
    def mind(_asked: ClientRequest) -> Reply:
        return shell("echo $$ > begun; while true; do sleep 0.2; done")

    async def main() -> None:
        pages, leave = Pages(), FreeLeave()
        async with world_of(fetched, tmp_path, mind).open() as world:
            carrying = asyncio.create_task(world.carry(pages, leave))
            begun = world.project / "begun"
            await until(lambda: lines_of(begun))
            tool = int(lines_of(begun)[0])
            client = int(str(pages.of("process")[0]["pid"]))
            carrying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await carrying
            await until(lambda: not _runs(tool) and not _runs(client))

    run(main())


@pytest.mark.parametrize("fetched", CLIENTS[1:])
def test_an_answer_that_is_owed_is_asked_for_twice_and_then_it_is_a_schema_ending(
    fetched: FETCHED, tmp_path: Path
) -> None:
    async def main() -> None:
        pages, leave = Pages(), FreeLeave()
        async with world_of(fetched, tmp_path, lambda _: Say("Nine points.")).open() as world:
            outcome = await world.carry(pages, leave, schema=SCHEMA)
            assert outcome.terminated_by is Ending.SCHEMA
            assert outcome.value is None
            assert outcome.text == "Nine points."
            assert len(pages.of("process")) == 3
            assert len({asked.session for asked in world.received}) == 1

    run(main())


@pytest.mark.parametrize("fetched", [CLIENTS[0], CLIENTS[2]])
def test_an_outage_that_outlasts_all_patience_is_an_outage_and_no_missing_answer(
    fetched: FETCHED, tmp_path: Path
) -> None:
    async def main() -> None:
        pages, leave = Pages(), FreeLeave()
        hold = HoldSettings(other=0.5)
        async with world_of(fetched, tmp_path, lambda _: Say("-"), hold=hold).open() as world:
            assert world.server is not None
            world.server.playing.add_fault(Fault(Effect.SERVER_ERROR))
            outcome = await world.carry(pages, leave, schema=SCHEMA)
            assert outcome.terminated_by is Ending.OUTAGE
            assert outcome.evidence.failure in ("upstream_5xx", "overloaded")
            assert len(pages.of("process")) == 1

    run(main())


@pytest.mark.parametrize("fetched", CLAUDES[1:])
def test_turns_are_limited_over_all_processes_of_an_agent(fetched: FETCHED, tmp_path: Path) -> None:
    async def main() -> None:
        pages, leave = Pages(), FreeLeave()
        mind = lambda _: shell("echo again")  # noqa: E731
        async with world_of(fetched, tmp_path, mind).open() as world:
            outcome = await world.carry(pages, leave, max_turns=2)
            assert outcome.terminated_by is Ending.TURNS
            # Once 62 calls were counted here, and nobody could say whose they were.
            whose = Counter(
                (asked.session, asked.agent, asked.prompt[:80]) for asked in world.received
            )
            assert (outcome.turns, len(world.ledger)) == (2, 2), whose
            again = await world.carry(pages, leave, max_turns=2)
            assert again.terminated_by is Ending.TURNS
            assert len(world.ledger) == 2, "nothing more was asked"

    run(main())


def _runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    if not Path("/proc/self/stat").exists():
        told = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False
        )
        return bool(told.stdout.strip()) and not told.stdout.startswith(b"Z")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
