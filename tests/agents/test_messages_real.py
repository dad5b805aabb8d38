"""The messages runner over real sockets and real processes: storms, walls, and `kill -9`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter as Count
from pathlib import Path
from typing import Any

from jackline.agents.gateway_model import GatewayModel
from jackline.agents.messages import MessagesRunner
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.runner import JsonObject
from jackline.failures import Failure
from jackline.gateway.settings import HoldSettings
from jackline.simulator.reply_script import Rule, Say, long_answer, structured
from jackline.testing import SimulatedProvider
from tests.agents.world import CAPITALS, Counter, FileNotebook, MemoryNotebook, OpenLeave, run, task
from tests.assembly.world import gateway

VALUE: JsonObject = {"capital": "Paris", "people": 3}
ROOT = Path(__file__).parents[2]


def three_turns() -> tuple[Rule, ...]:
    return (
        Rule(Say("I add.", (("add", {"a": 1, "b": 2}), ("add", {"a": 13, "b": 0}))), turn=0),
        Rule(Say("Once more.", (("add", {"a": 3, "b": 4}),)), turn=1),
        Rule(structured(VALUE), turn=2),
    )


def fleet(
    folder: Path, simulated: SimulatedProvider, count: int, leave: OpenLeave
) -> list[tuple[Outcome[object], Counter]]:
    """So many agents at once through one gateway."""

    async def main() -> list[tuple[Outcome[object], Counter]]:
        hold = HoldSettings(quota=0.0)
        async with (
            gateway(folder, simulated.url, hold=hold) as service,
            GatewayModel(service.url, headers=(("x-api-key", "sk-ant-dummy"),)) as model,
        ):
            runner = MessagesRunner(model, tag="run-1")
            tools = [Counter() for _ in range(count)]
            tasks = [
                task(
                    f"Question {number}",
                    tools=[tools[number]],
                    schema=CAPITALS,
                    task_id=f"task-{number}",
                    session_id=f"session-{number}",
                )
                for number in range(count)
            ]
            outcomes = await asyncio.gather(
                *(runner.run(each, MemoryNotebook(), leave) for each in tasks)
            )
        return list(zip(outcomes, tools, strict=True))

    return run(main())


def test_agents_with_tools_and_schemas_get_through_a_storm_of_throttles(tmp_path: Path) -> None:
    with SimulatedProvider() as simulated:
        simulated.says(*three_turns())
        simulated.throttle(2.0, share=0.6, retry_after=1)
        simulated.cut(3.0, at=0.6, share=0.3)
        ended = fleet(tmp_path, simulated, 8, OpenLeave())
        assert simulated.ledger.wasted > 0
    for outcome, tool in ended:
        assert outcome.ok, outcome
        assert outcome.value == VALUE
        assert outcome.turns == 3
        assert len(tool.runs) == 3


def test_a_quota_wall_is_met_through_leave_and_the_same_turn_goes_on(tmp_path: Path) -> None:
    with SimulatedProvider() as simulated:
        simulated.says(*three_turns())
        walls = []

        async def at_the_wall(failure: Failure) -> None:
            walls.append(failure)
            assert failure.resets_at is not None
            await asyncio.to_thread(simulated.heal)
            # Its lane is parked until the reset that the vendor told, unless somebody asks again.
            await asyncio.sleep(0.05)

        leave = OpenLeave(on_wall=at_the_wall)

        async def wall_before_second_turn(number: int) -> None:
            if number == 2:
                await asyncio.to_thread(simulated.quota_wall, 2.0)

        leave.on_call = wall_before_second_turn
        ((outcome, tool),) = fleet(tmp_path, simulated, 1, leave)
    assert outcome.ok, outcome
    assert outcome.value == VALUE
    assert len(walls) >= 1
    assert len(tool.runs) == 3
    assert outcome.turns == 3


# --- kill -9 ------------------------------------------------------------------------------------


def _speaking(simulated: SimulatedProvider) -> bool:
    """Whether the second answer has begun, and not ended."""
    entries = simulated.ledger.entries
    return len(entries) == 2 and entries[1].first_byte is not None and entries[1].ended is None


class Killed:
    """One agent in processes of its own, killed and started again."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.agents.kill_worker", str(self.folder), self.url]
        return subprocess.Popen(command, cwd=ROOT)

    def kill_when(self, condition: Any) -> None:
        """`kill -9` as soon as the condition holds."""
        process = self.start()
        until = time.monotonic() + 60
        try:
            while not condition():
                assert process.poll() is None, "it ended before it could be killed"
                assert time.monotonic() < until
                time.sleep(0.005)
        finally:
            process.kill()
            process.wait()

    def finish(self) -> dict[str, Any]:
        process = self.start()
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
        told: dict[str, Any] = json.loads((self.folder / "outcome.json").read_text())
        return told

    @property
    def kinds(self) -> Count[str]:
        return Count(entry.kind for entry in FileNotebook(self.folder / "notebook").entries)

    @property
    def ran(self) -> list[str]:
        """What the tool did to the world, by its own account."""
        marks = self.folder / "marks"
        return marks.read_text().splitlines() if marks.exists() else []


def test_killed_inside_a_tool_nothing_runs_twice_and_the_model_is_told(tmp_path: Path) -> None:
    with SimulatedProvider() as simulated:
        simulated.says(
            Rule(Say("", (("mark", {"n": "1"}), ("mark", {"n": "hang"}))), turn=0),
            Rule(Say("", (("mark", {"n": "2"}),)), turn=1),
            Say("The end."),
        )
        killed = Killed(tmp_path, simulated.url)
        killed.kill_when(
            lambda: (
                "hang" in killed.ran
                and killed.kinds["tool_ended"] == 1
                and killed.kinds["tool_output"] >= 1
            )
        )
        before = simulated.ledger.useful
        told = killed.finish()
        assert simulated.ledger.useful - before == 2
    assert told["terminated_by"] == Ending.COMPLETION.value
    assert told["value"] == "The end."
    assert sorted(killed.ran) == ["1", "2", "hang"]
    notebook = (tmp_path / "notebook").read_text()
    assert "may or may not have run" in notebook
    assert "half way" in notebook


def test_killed_inside_a_stream_only_the_answer_in_hand_is_paid_again(tmp_path: Path) -> None:
    with SimulatedProvider() as simulated:
        slow = long_answer(400, tokens_per_second=200)
        simulated.says(Rule(Say("", (("mark", {"n": "1"}),)), turn=0), Rule(slow, turn=1))
        killed = Killed(tmp_path, simulated.url)
        killed.kill_when(lambda: _speaking(simulated))
        assert killed.kinds["answer"] == 1
        told = killed.finish()
    assert told["value"] == slow.text
    assert killed.ran == ["1"]
    assert killed.kinds["answer"] == 2


def test_killed_again_and_again_the_work_is_done_once_and_whole(tmp_path: Path) -> None:
    turns, kills = 4, (3, 6, 9, 13, 16)
    with SimulatedProvider() as simulated:
        marks = [
            Say("", (("mark", {"n": f"{turn}a"}), ("mark", {"n": f"{turn}b"})), delay=0.1)
            for turn in range(turns)
        ]
        script = [Rule(say, turn=turn) for turn, say in enumerate(marks)]
        simulated.says(*script, Say("The end.", delay=0.1))
        killed = Killed(tmp_path, simulated.url)
        for lines in kills:
            killed.kill_when(lambda lines=lines: killed.kinds.total() >= lines)
        told = killed.finish()
        useful = simulated.ledger.useful
    assert told["value"] == "The end."
    assert len(set(killed.ran)) == len(killed.ran)
    unsure = (tmp_path / "notebook").read_text().count('"ended_by": "may or may not have run"')
    # What left no mark was cut off as it began, and the model was told so.
    assert 2 * turns - unsure <= len(killed.ran) <= 2 * turns
    assert killed.kinds["answer"] == turns + 1
    assert useful <= turns + 1 + len(kills)
