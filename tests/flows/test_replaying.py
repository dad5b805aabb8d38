"""What is finished stays finished, whatever kills the process, and however the flow is written."""

from __future__ import annotations

import asyncio
import bisect
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline import Budget, agent, flow, parallel, step
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.runner import AgentTask
from jackline.clock import SystemClock, VirtualClock
from jackline.errors import LeaseLostError
from jackline.flows.agent_spec import AgentSpec
from jackline.flows.authoring.calls import AgentFailedError
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_run
from jackline.flows.records import CallKind, CallRecord, CallState, RunRecord, RunState
from jackline.flows.run_events import AgentReplayed
from jackline.flows.settings import RunSettings
from jackline.flows.store import open_run_store
from jackline.flows.store.run_store import Claim, RunStore
from jackline.flows.values import Shape
from jackline.testing.scripted_agents import Play, ScriptedRunner
from tests.flows.world import EPOCH, World, played, world

T = TypeVar("T")

# --- flows drawn at random ---------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """One call: its label may be another's too, with the same or another prompt."""

    kind: str
    label: str
    prompt: str
    fails: bool
    pause: float


@dataclass(frozen=True)
class Branch:
    """Several parts, one after the other or side by side, in the words of asyncio."""

    how: str
    parts: tuple[Leaf | Branch, ...]
    pause: float


leaves = st.builds(
    Leaf,
    st.sampled_from(["agent", "step", "outcome"]),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(["p", "q", "r"]),
    st.booleans(),
    st.sampled_from([0.0, 0.3, 1.7]),
)
trees = st.recursive(
    leaves,
    lambda inner: st.builds(
        Branch,
        st.sampled_from(["sequence", "gather", "group", "parallel"]),
        st.lists(inner, min_size=1, max_size=4).map(tuple),
        st.sampled_from([0.0, 0.2, 1.1]),
    ),
    max_leaves=12,
)


@dataclass
class Ledger:
    """What really ran, counted outside the store."""

    done: Counter[str] = field(default_factory=Counter)


class MortalEngine:
    """An engine whose owner loses it after so many writes, as a killed process would."""

    def __init__(self, engine: RunStore, writes: int) -> None:
        self._engine = engine
        self._left = writes

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._engine, name)
        reads = {"run", "runs", "calls", "entries", "hooks", "resources", "notes", "stop_request"}
        reads |= {"find_session", "find_task", "spent_since", "ordered_ends"}
        reads |= {"untrusted_rows", "on_wait", "hurry"}
        if name in reads:
            return method

        async def mortal(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise LeaseLostError("killed")
            return await method(*args, **kwargs)

        return mortal


def work(prompt: str, fails: bool) -> str:
    if fails:
        raise ValueError(prompt)
    return f"step {prompt}"


async def call(leaf: Leaf) -> str:
    """One call, its failure told in its answer."""
    if leaf.kind == "step":
        try:
            return await step(work, leaf.prompt, leaf.fails)
        except ValueError as error:
            return f"failed {error}"
    prompt = f"{'fail ' if leaf.fails else ''}{leaf.prompt}"
    if leaf.kind == "outcome":
        outcome = await agent(prompt, label=leaf.label, retries=0).outcome()
        return outcome.value or outcome.terminated_by.value
    try:
        return await agent(prompt, label=leaf.label, retries=0)
    except AgentFailedError as error:
        return error.outcome.terminated_by.value


def flow_of(tree: Leaf | Branch, clock: VirtualClock) -> Flow[[], str]:
    async def visit(node: Leaf | Branch) -> str:
        await clock.sleep(node.pause)
        if isinstance(node, Leaf):
            return await call(node)
        if node.how == "sequence":
            return f"[{','.join([await visit(part) for part in node.parts])}]"
        if node.how == "gather":
            return f"({','.join(await asyncio.gather(*map(visit, node.parts)))})"
        if node.how == "parallel":
            return f"<{','.join((await parallel(map(visit, node.parts))).values)}>"
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(visit(part)) for part in node.parts]
        return f"{{{','.join(task.result() for task in tasks)}}}"

    @flow
    async def drawn() -> str:
        return await visit(tree)

    return drawn


def answer(task: AgentTask) -> Play:
    if task.prompt.startswith("fail"):
        return Play(ending=Ending.TURNS, seconds=0.4)
    return Play(value=f"{task.label and task.prompt}!{task.prompt}", turns=2, seconds=0.7)


def calm() -> RunSettings:
    return RunSettings(poll=1000.0, lease=5000.0, guard=0, grace=0.0)


@settings(max_examples=120, deadline=None)
@given(tree=trees, kills=st.lists(st.integers(0, 40), max_size=4))
def test_a_run_killed_anywhere_and_resumed_gives_the_same_and_repeats_nothing_finished(
    tree: Leaf | Branch, kills: list[int]
) -> None:
    async def test() -> None:
        undisturbed = await _undisturbed(tree)
        clock = VirtualClock(EPOCH)
        store = open_run_store("sqlite:///:memory:", wall=clock.wall)
        runner = ScriptedRunner(answer, clock=clock)
        drawn = flow_of(tree, clock)
        finished: dict[tuple[str, int], CallRecord] = {}
        begun = False
        for writes in [*kills, None]:
            engine: Any = store if writes is None else MortalEngine(store, writes)
            w = World(clock, engine, runner, settings=calm())
            asked_before = Counter(runner.answered)
            try:
                outcome = await (w.resume(drawn) if begun else w.run(drawn))
            except LeaseLostError:
                outcome = None
            begun = begun or await store.run("r1") is not None
            await _nothing_finished_was_touched(store, finished, runner, asked_before)
            if outcome is not None:
                assert outcome.value == undisturbed.value
                return
            await clock.advance(10_000)  # the dead owner's lease ends

    played(test)


async def _undisturbed(tree: Leaf | Branch) -> Outcome[str]:
    w = world(answer, settings=calm())
    return await w.run(flow_of(tree, w.clock))


async def _nothing_finished_was_touched(
    store: RunStore,
    finished: dict[tuple[str, int], CallRecord],
    runner: ScriptedRunner,
    before: Counter[str],
) -> None:
    if await store.run("r1") is None:
        return
    now = {(c.key, c.occurrence): c for c in await store.calls("r1") if c.state is CallState.DONE}
    for name, call in finished.items():
        assert now[name] == call, "what was finished stays as it was"
    done_labels = Counter(call.label for call in finished.values() if call.kind is CallKind.AGENT)
    all_labels = Counter(c.label for c in await store.calls("r1") if c.kind is CallKind.AGENT)
    asked = Counter(runner.answered) - before
    for label, count in asked.items():
        # At most two turns for each agent of this label that was not finished before.
        assert count <= 2 * (all_labels[label] - done_labels[label])
    finished.clear()
    finished.update(now)


def test_an_agent_that_was_underway_goes_on_at_its_last_whole_turn() -> None:
    @flow
    async def one() -> str:
        return await agent("x", label="long")

    async def test() -> None:
        clock = VirtualClock(EPOCH)
        store = open_run_store("sqlite:///:memory:", wall=clock.wall)
        runner = ScriptedRunner(lambda _task: Play(value="v", turns=10, seconds=1), clock=clock)
        # create, begin, session line, then a turn and what it cost, twice each
        w = World(clock, MortalEngine(store, 3 + 2 * 4 + 4), runner, settings=calm())
        with pytest.raises(LeaseLostError):
            await w.run(one)
        answered = len(runner.answered)
        assert 0 < answered < 10
        await clock.advance(10_000)
        outcome = await World(clock, store, runner, settings=calm()).resume(one)
        assert outcome.value == "v"
        assert len(runner.answered) <= 10 + 1, "at most the turn in hand was lost"
        assert runner.tasks[-1].what_happened == (
            "The process that ran you ended before you were done."
        )
        assert runner.tasks[0].session_id == runner.tasks[-1].session_id

    played(test)


def test_editing_the_flow_and_resuming_runs_exactly_the_calls_whose_key_changed() -> None:
    def version(prompts: list[str], fails: bool) -> Flow[[], list[str]]:
        @flow
        async def edited() -> list[str]:
            found = await parallel(agent(p, label="one") for p in prompts)
            if fails:
                raise RuntimeError("a bug to be fixed")
            return found.values

        return edited

    async def test() -> None:
        w = world(lambda task: task.prompt.upper())
        outcome = await w.run(version(["a", "b", "c"], fails=True))
        assert outcome.exit_code == 1
        outcome = await w.resume(version(["c", "x", "b"], fails=False))
        assert outcome.value == ["C", "X", "B"]
        assert len(w.runner.begun) == 4
        assert outcome.tally.replayed == 2

    played(test)


def test_the_same_call_many_times_is_many_calls() -> None:
    numbers = iter(range(100))

    @flow
    async def same() -> list[str]:
        return (await parallel(agent("same") for _ in range(5))).values

    @flow
    async def again() -> list[str]:
        return [*(await parallel(agent("same") for _ in range(5))).values, await agent("same")]

    async def test() -> None:
        w = world(lambda _task: str(next(numbers)))
        first = await w.run(same)
        assert first.value == ["0", "1", "2", "3", "4"]
        record = await w.engine.run("r1")
        assert record is not None
        await _reopen(w, record)
        assert (await w.resume(again)).value == ["0", "1", "2", "3", "4", "5"]

    played(test)


def test_a_failed_call_runs_again_on_resume_and_a_finished_run_does_not() -> None:
    healthy = False

    def script(task: AgentTask) -> Play:
        return Play(value="ok") if healthy or task.label == "good" else Play(ending=Ending.TURNS)

    @flow
    async def two() -> list[str]:
        return [await agent("x", label="good"), await agent("y", label="bad")]

    async def test() -> None:
        nonlocal healthy
        w = world(script)
        assert (await w.run(two)).terminated_by is Ending.TURNS
        healthy = True
        outcome = await w.resume(two)
        assert outcome.value == ["ok", "ok"]
        assert w.runner.begun == ["good", "bad", "bad"]
        assert w.runner.tasks[-1].what_happened == "Your last attempt ended by turns."
        again = await w.resume(two)
        assert again.value == ["ok", "ok"]
        assert len(w.runner.begun) == 3

    played(test)


def test_a_call_cancelled_by_the_flows_own_timeout_is_kept_as_cancelled_and_runs_again() -> None:
    patience = 5.0

    @flow
    async def hasty() -> str:
        work = asyncio.ensure_future(agent("x", label="slow"))
        waiting = asyncio.ensure_future(w.clock.sleep(patience))
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            raise TimeoutError("too slow")
        return work.result()

    w = world(lambda _task: Play(value="v", turns=2, seconds=4))

    async def test() -> None:
        nonlocal patience
        outcome = await w.run(hasty)
        assert outcome.terminated_by is Ending.CRASH
        [call] = await w.engine.calls("r1")
        assert (call.state, call.terminated_by) == (CallState.FAILED, "cancelled")
        assert call.tokens == 100, "what it had used is counted"
        patience = 100.0
        assert (await w.resume(hasty)).value == "v"
        assert w.runner.begun == ["slow", "slow"]

    played(test)


def test_asyncios_own_timeout_ends_an_agent_as_cancelled() -> None:
    @flow
    async def hasty() -> str:
        try:
            async with asyncio.timeout(0.01):
                return await agent("x", label="slow")
        except TimeoutError:
            return "late"

    async def test() -> None:
        clock = SystemClock()
        store = open_run_store("sqlite:///:memory:", wall=clock.wall)
        runner = ScriptedRunner(lambda _task: Play(seconds=3600), clock=clock)
        host = FlowHost(store, lambda _run_id: {"messages": runner}, clock=clock)
        outcome = await (await begin_run(host, hasty, b"{}", run_id="r1")).run()
        assert outcome.value == "late"
        assert outcome.tally.endings == ((Ending.CANCELLED, 1),)
        assert outcome.exit_code == 3

    played(test)


def test_ten_thousand_finished_calls_replay_without_running_anything() -> None:
    @flow
    async def many() -> int:
        return len((await parallel(agent(str(n), label="n") for n in range(10_000))).values)

    async def test() -> None:
        w = world(lambda _task: pytest.fail("nothing may run"), settings=calm())
        claim = await w.engine.create(RunRecord("r1", "many", "", b"{}"), owner="old", lease=1)
        for n in range(10_000):
            key = AgentSpec(str(n), Shape(None), label="n").key()
            await w.engine.end_call(
                claim, done_call(key, 0, CallKind.AGENT, "n", f'"{n}"'.encode())
            )
        await w.engine.let_go(claim, RunRecord("r1", "many", "", b"{}", state=RunState.STOPPED))
        before = time.process_time()
        outcome = await w.resume(many)
        took = time.process_time() - before
        assert outcome.value == 10_000
        assert outcome.tally.replayed == 10_000
        # A guard against quadratic work, far above what it takes on any machine.
        assert took < 60

    played(test)


def done_call(key: str, occurrence: int, kind: CallKind, label: str, value: bytes) -> CallRecord:
    return CallRecord(
        "r1",
        key,
        occurrence,
        kind,
        label,
        "",
        f"t-{key[:10]}-{occurrence}",
        CallState.DONE,
        value=value,
        outcome=b'{"terminated_by":"completion"}',
    )


async def _reopen(w: World, record: RunRecord) -> None:
    """Make a finished run one that was left by a crash, as its store would show it."""
    claim = await w.engine.claim("r1", owner="test", lease=1)
    assert isinstance(claim, Claim)
    stopped = RunRecord(**{**_fields(record), "state": RunState.STOPPED, "outcome": None})
    await w.engine.let_go(claim, stopped)


def _fields(record: RunRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


# --- the stored format -------------------------------------------------------------------------

HISTORY: list[tuple[str, CallKind, str, bytes]] = [
    # key, kind, label, value: as version 0.1.0 wrote them
    (
        "a10105ca1508536f5276d4feb975653fbbb50a56c2665523b4d3f2d9ea4613b8",
        CallKind.AGENT,
        "agent 1",
        b'"<plain>"',
    ),
    (
        "52eb4e05ad5b46e582bcfce827ebb6b51004e8b45cc1a13fcb04cfbfe5f5c222",
        CallKind.AGENT,
        "l",
        b'"<\xc3\xbcn\xc3\xafcode\\n>"',
    ),
    (
        "d936f860f81c18f8ae3e4ec2f21ede5c96e7f99f0a54a6cec5d33cb57d9e03e5",
        CallKind.AGENT,
        "agent 3",
        b'{"a":1}',
    ),
    (
        "cb15cffc3489575b3c7034b3ae7cc83ca9c3cbd071f0cb832a6d2d609383860e",
        CallKind.AGENT,
        "agent 4",
        b'"<tools>"',
    ),
    (
        "49d9ef9f6d6212cac0f9db92022be0a6f9ec6336441e932f4e5db2ee261679cd",
        CallKind.STEP,
        "_added",
        b"3",
    ),
    (
        "49d9ef9f6d6212cac0f9db92022be0a6f9ec6336441e932f4e5db2ee261679cd",
        CallKind.STEP,
        "_added",
        b"3",
    ),
]


@flow
async def recorded() -> list[Any]:
    """The flow whose history is stored below; it must not be changed."""
    return [
        await agent("plain"),
        await agent("ünïcode\n", label="l", model="m", system="s", cwd="sub", runner="messages"),
        await agent("typed", schema={"type": "object", "properties": {"a": {"type": "integer"}}}),
        await agent("tools", tools=["read", "shell", {"srv": {"command": "x", "args": ["1"]}}]),
        await step(_added, 1, b=2),
        await step(_added, 1, b=2),
    ]


def _added(a: int, b: int) -> int:
    return a + b


def test_a_history_that_an_earlier_version_stored_still_answers() -> None:
    async def test() -> None:
        w = world(lambda _task: pytest.fail("nothing may run"))
        claim = await w.engine.create(RunRecord("r1", "recorded", "", b"{}"), owner="old", lease=1)
        for number, (key, kind, label, value) in enumerate(HISTORY):
            occurrence = int(label == "_added" and number == len(HISTORY) - 1)
            await w.engine.end_call(claim, done_call(key, occurrence, kind, label, value))
        await w.engine.let_go(claim, RunRecord("r1", "recorded", "", b"{}", state=RunState.STOPPED))
        outcome = await w.resume(recorded)
        assert outcome.ok, outcome
        assert outcome.value == [json.loads(value) for _, _, _, value in HISTORY]
        assert len(w.of(AgentReplayed)) == 4

    played(test)


def record_history(write: Callable[[str], None]) -> None:
    """Print what HISTORY must hold; for whoever changes the format on purpose."""

    async def record() -> None:
        w = world(lambda task: {"a": 1} if task.schema else f"<{task.prompt}>")
        assert (await w.run(recorded)).ok
        for call in await w.engine.calls("r1"):
            write(f"({call.key!r}, CallKind.{call.kind.name}, {call.label!r}, {call.value!r}),")

    played(record)


# --- going on with an earlier agent ------------------------------------------------------------


def test_an_agent_goes_on_with_an_earlier_ones_session_and_notebook() -> None:
    @flow
    async def chain() -> list[str]:
        first = await agent("begin", label="first").outcome()
        second = await agent("go on", label="second", continue_from=first).outcome()
        third = await agent("go on", label="third", resume=first.session_id).outcome()
        fourth = await agent("go on", label="fourth", resume="unknown").outcome()
        return [second.terminated_by.value, third.terminated_by.value, fourth.evidence.says]

    async def test() -> None:
        w = world(lambda task: Play(turns=2 if task.label == "first" else 3))
        outcome = await w.run(chain)
        assert outcome.value is not None
        assert outcome.value[:2] == ["completion", "completion"]
        assert outcome.value[2].startswith("There is no earlier agent unknown to go on with.")
        first, second, third = w.runner.tasks
        assert first.resume_session is None
        assert second.resume_session == third.resume_session == first.session_id
        assert second.session_id != first.session_id
        # The two turns of the first count as done: each of the others took one more.
        assert w.runner.answered == ["first", "first", "second", "third"]
        replayed = await _reopened(w, chain)
        assert replayed.value == outcome.value
        assert len(w.runner.answered) == 4

    played(test)


def test_a_chain_of_agents_goes_on_with_the_whole_conversation() -> None:
    @flow
    async def chain() -> None:
        first = await agent("begin", label="first").outcome()
        second = await agent("go on", label="second", continue_from=first).outcome()
        third = await agent("go on", label="third", continue_from=second).outcome()
        await agent("go on", label="fourth", resume=third.session_id)
        await agent("go on", label="beside", continue_from=first)

    async def test() -> None:
        # Each is done after so many turns of the whole conversation, earlier agents' included.
        turns = {"first": 2, "second": 3, "third": 4, "fourth": 5, "beside": 4}
        w = world(lambda task: Play(turns=turns[task.label]))
        assert (await w.run(chain)).ok
        alone = ["first", "first", "second", "third", "fourth", "beside", "beside"]
        assert w.runner.answered == alone

    played(test)


def test_an_agent_that_is_cut_off_goes_on_from_where_the_other_stood_when_it_began() -> None:
    @flow
    async def chain() -> list[int]:
        first = await agent("begin", label="first", budget=Budget(turns=limit[0])).outcome()
        second = await agent("go on", label="second", continue_from=first.task_id).outcome()
        return [first.turns, second.turns]

    limit = [1]

    async def test() -> None:
        w = world(lambda _task: Play(turns=3, seconds=60))
        begun = await w.begin(chain)
        task = asyncio.create_task(begun.run())
        await w.until(lambda: w.runner.answered == ["first", "second"], task)
        begun.stop_now()
        await w.through(asyncio.wait_for(task, None))
        limit[0] = 2  # so that the first comes further before the second goes on
        assert (await w.resume(chain)).value is not None
        assert w.runner.answered == ["first", "second", "first", "second"]

    played(test)


def test_a_replay_shows_the_flow_exactly_what_the_first_run_showed() -> None:
    seen: list[list[Outcome[Any]]] = []

    @flow
    async def looking() -> int:
        calls = [
            agent("a", label="a", schema={"type": "object"}),
            agent("b", label="b", budget=Budget(tokens=10_000)),
        ]
        seen.append([await call.outcome() for call in calls])
        return 1

    async def test() -> None:
        w = world(lambda task: Play({"x": (1, 2)} if task.schema else "t", turns=2, dollars=0.1))
        await w.run(looking)
        await _reopened(w, looking)
        assert seen[0] == seen[1]
        assert seen[0][0].value == {"x": [1, 2]}

    played(test)


def test_functions_of_the_same_name_in_other_modules_are_other_steps() -> None:
    @flow
    async def two() -> list[int]:
        return [await step(bisect.bisect, [1, 2, 3], 2), await step(_bisect_like(), [1, 2, 3], 2)]

    async def test() -> None:
        assert (await world().run(two)).value == [2, -1]

    played(test)


def _bisect_like() -> Callable[[list[int], int], int]:
    def bisect_right(_numbers: list[int], _number: int) -> int:
        return -1

    bisect_right.__qualname__ = bisect.bisect.__qualname__
    return bisect_right


async def _reopened(w: World, drawn: Flow[[], T]) -> Outcome[T]:
    record = await w.engine.run("r1")
    assert record is not None
    await _reopen(w, record)
    return await w.resume(drawn)
