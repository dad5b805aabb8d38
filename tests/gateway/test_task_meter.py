"""The gateway counts for each agent how long it was held, its answers, and what its calls used."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.agents.task_meter import MOST_MODELS, MOST_TASKS, TaskMeter, TaskMeters
from jackline.calls import Dialect
from jackline.dialects import TokenUsage
from jackline.gateway.settings import GatewaySettings
from jackline.private_files import installation_key, signature
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.task_proof import HEADER, named_task, task_in
from jackline.testing import Step
from jackline.testing.scripted_upstream import STREAMED
from tests.gateway.desk_world import CLAUDE_CODE, MODEL, World, play, wall
from tests.gateway.test_foreign_clients import DIALECTS, PATHS, settings

PROVEN = dict(named_task("t1"))[HEADER]
USED = TokenUsage(100, 20)
UNSAID = STREAMED.replace(b'"input_tokens":100,"output_tokens":1', b"").replace(
    b'"output_tokens":20', b'"output_tokens":0'
)
WORDS = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"Hello"}}\n\n'
)
TALK = STREAMED.replace(WORDS, WORDS * 50)


def meter_of(world: World, task: str = "t1") -> TaskMeter:
    return world.desk.task_meters.by_task[task]


def held(meters: TaskMeters) -> dict[str, float]:
    return {task: meter.held for task, meter in meters.by_task.items() if meter.held}


def test_a_call_that_waits_at_a_wall_is_held_until_it_is_sent() -> None:
    async def scene(world: World) -> None:
        client = world.ask(headers=dict(named_task("t1")))
        other = world.ask(headers={})
        await world.pass_time(200)
        assert meter_of(world).held == pytest.approx(200, abs=3)
        await world.until_over(client, other)
        seconds = meter_of(world).held
        assert seconds == pytest.approx(400, abs=5)
        await world.pass_time(100)
        assert meter_of(world).held == seconds, "an answered call is not held"
        assert set(world.desk.task_meters.by_task) == {"t1"}

    play([wall(400), Step(), Step()], scene)


def test_the_time_of_a_slow_answer_is_not_held() -> None:
    async def scene(world: World) -> None:
        await world.until_over(world.ask(headers=dict(named_task("t1"))), longest=200)
        assert held(world.desk.task_meters) == {}

    play([Step(after=20)], scene)


def test_an_answer_counts_once_by_the_model_that_the_upstream_was_asked_for() -> None:
    async def scene(world: World) -> None:
        await world.until_over(world.ask("one", headers=dict(named_task("t1"))))
        await world.until_over(world.ask("two", headers=dict(named_task("t1")), stream=False))
        await world.until_over(world.ask("three", headers=dict(named_task("t2"))))
        assert meter_of(world).answers == 2
        assert meter_of(world).usage == {MODEL: USED + TokenUsage(10, 5)}
        assert meter_of(world, "t2").usage == {MODEL: USED}

    whole = b'{"type":"message","content":[],"usage":{"input_tokens":10,"output_tokens":5}}'
    plain = Step(headers={"content-type": "application/json"}, says=whole)
    play([Step(), plain, Step()], scene)


@pytest.mark.parametrize("agent", [CLAUDE_CODE, "curl/8"])
def test_a_call_that_its_program_leaves_has_used_what_came_so_far(agent: str) -> None:
    """The vendor says what an answer used when it ends; this one never does."""

    async def scene(world: World) -> None:
        client = world.ask(headers=dict(named_task("t1")), user_agent=agent)
        await world.pass_time(5)
        client.exchange.left()
        meter = meter_of(world)
        assert meter.answers == 0
        assert meter.usage[MODEL].input_tokens == 100
        assert 20 <= meter.usage[MODEL].output_tokens <= 60

    play([Step(says=TALK, after=1, between=600)], scene)


def test_a_call_that_was_not_answered_yet_has_used_nothing() -> None:
    async def scene(world: World) -> None:
        client = world.ask(headers=dict(named_task("t1")))
        await world.pass_time(5)
        client.exchange.left()
        assert dict(world.desk.task_meters.by_task) == {}

    play([Step(after=600)], scene)


def test_attempts_whose_answers_broke_off_count_too() -> None:
    async def scene(world: World) -> None:
        await world.until_over(world.ask(headers=dict(named_task("t1"))), longest=3000)
        assert meter_of(world).answers == 1
        assert meter_of(world).usage[MODEL].input_tokens == 200

    head = STREAMED.index(b"event: content_block_start")
    play([Step(cut=head), Step()], scene)


def test_what_an_upstream_leaves_out_is_estimated() -> None:
    async def scene(world: World) -> None:
        await world.until_over(world.ask("word " * 4000, headers=dict(named_task("t1"))))
        used = meter_of(world).usage[MODEL]
        assert used.input_tokens == pytest.approx(5000, rel=0.05)
        assert used.output_tokens >= 5

    play([Step(says=UNSAID)], scene)


TALK_UNSAID = UNSAID.replace(WORDS, WORDS * 50)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_what_a_left_answer_used_does_not_depend_on_its_line_ends(end: bytes) -> None:
    async def scene(world: World) -> None:
        client = world.ask("word " * 4000, headers=dict(named_task("t1")))
        await world.pass_time(5)
        client.exchange.left()
        used = meter_of(world).usage[MODEL]
        assert used.input_tokens == pytest.approx(5000, rel=0.05)
        assert 20 <= used.output_tokens <= 60

    play([Step(says=TALK_UNSAID.replace(b"\n", end), after=1, between=600)], scene)


def test_each_attempt_that_an_upstream_has_begun_to_answer_has_read_its_input() -> None:
    """Also one without a single event; an error at once, and a lost connection, cost nothing."""

    async def scene(world: World) -> None:
        client = world.ask("word " * 4000, headers=dict(named_task("t1")))
        await world.until_over(client, longest=3000)
        assert world.ended[-1].attempts == 6
        assert meter_of(world).usage[MODEL].input_tokens == pytest.approx(20_000, rel=0.05)

    head = UNSAID.index(b"event: content_block_start")
    overloaded = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n'
    lost = Step(breaks=ConnectionResetError("connection reset"))
    broken = Step(says=UNSAID, cut=head)
    play([broken, broken, Step(cut=0), Step(says=overloaded), lost, Step(says=UNSAID)], scene)


@pytest.mark.parametrize("stream", [True, False])
def test_a_document_without_usage_is_estimated(stream: bool) -> None:
    async def scene(world: World) -> None:
        await world.until_over(world.ask(headers=dict(named_task("t1")), stream=stream))
        assert meter_of(world).usage[MODEL].output_tokens >= 100

    block = {"type": "text", "text": "some words " * 1000}
    said = {"input_tokens": 9, "output_tokens": 0}
    message = {"type": "message", "content": [block], "stop_reason": "end_turn", "usage": said}
    play([whole_document(message)], scene)


def whole_document(answer: object) -> Step:
    headers = {"content-type": "application/json"}
    return Step(headers=headers, says=json.dumps(answer).encode())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", ["message", "answer"])
def test_the_usage_of_a_document_counts_whatever_was_asked_for(kind: str, stream: bool) -> None:
    async def scene(world: World) -> None:
        await world.until_over(world.ask(headers=dict(named_task("t1")), stream=stream))
        assert meter_of(world).usage == {MODEL: TokenUsage(500_000, 90_000)}
        assert (world.ended[-1].input_tokens, world.ended[-1].output_tokens) == (500_000, 90_000)

    used = {"input_tokens": 500_000, "output_tokens": 90_000}
    play([whole_document({"type": kind, "content": [], "usage": used})], scene)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_usage_of_a_whole_foreign_answer_counts(dialect: Dialect, stream: bool) -> None:
    async def scene(world: World) -> None:
        client = world.send_foreign(
            PATHS[dialect], dialect, stream=stream, headers=dict(named_task("t1"))
        )
        await world.until_over(client)
        assert meter_of(world).usage == {"gpt-5.5": TokenUsage(500_000, 90_000)}

    chat_usage = {"prompt_tokens": 500_000, "completion_tokens": 90_000}
    usage = {"input_tokens": 500_000, "output_tokens": 90_000}
    chat = {"choices": [{"message": {}}], "usage": chat_usage}
    response = {"id": "r", "output": [{"type": "message"}], "usage": usage}
    answer = whole_document(chat if dialect == "openai-chat" else response)
    play({"openai": [answer]}, scene, settings(dialect))


def test_each_attempt_counts_for_the_model_that_its_own_lane_was_asked_for() -> None:
    """Else an upstream's dear and broken answer would be paid at the price of its stand-in."""
    dear = UpstreamSettings("dear", "https://dear.example")
    cheap = UpstreamSettings(
        "cheap",
        "https://cheap.example",
        credential=Credential.NONE,
        models={"claude-opus-*": "claude-haiku-4-5"},
    )

    async def scene(world: World) -> None:
        client = world.ask(headers=dict(named_task("t1")))
        await world.until_over(client, longest=3000)
        meter = meter_of(world)
        assert meter.answers == 1
        assert meter.usage[MODEL].input_tokens >= 100
        assert meter.usage["claude-haiku-4-5"] == USED

    head = STREAMED.index(b"event: content_block_start")
    both = replace(GatewaySettings(), upstreams=(dear, cheap))
    play({"dear": [Step(cut=head), wall(4000)], "cheap": [Step()]}, scene, both)


@given(
    st.tuples(*[st.integers(0, 3000)] * 4),
    st.binary(max_size=50).map(lambda junk: junk * 50),
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.booleans(),
)
def test_an_estimate_is_never_less_than_what_was_said_and_leaves_what_is_possible_alone(
    counts: tuple[int, ...], sent: bytes, estimate: int, events: int, whole: bool
) -> None:
    said = TokenUsage(*counts)
    counted = said.at_least_possible(sent, estimate, events, whole=whole)
    assert counted.input_tokens >= said.input_tokens
    assert counted.output_tokens >= said.output_tokens
    assert (counted.cache_read_tokens, counted.cache_write_tokens) == (
        said.cache_read_tokens,
        said.cache_write_tokens,
    )
    enough_input = (
        said.input_tokens + said.cache_read_tokens + said.cache_write_tokens >= len(sent) / 40
    )
    if enough_input:
        assert counted.input_tokens == said.input_tokens
    if said.output_tokens >= events:
        assert counted.output_tokens == said.output_tokens


def test_a_picture_is_no_text() -> None:
    """A screenshot is 1,500 tokens and a megabyte."""
    body = json.dumps({"source": {"type": "base64", "data": "A" * 1_000_000}}).encode()
    said = TokenUsage(1500, 5)
    assert said.at_least_possible(body, 250_000, 3, whole=True) == said


@given(st.lists(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.booleans()))))
def test_a_task_is_held_while_all_its_calls_wait(
    looks: Sequence[Sequence[tuple[str | None, bool]]],
) -> None:
    meters = TaskMeters()
    meters.look([], 0.0)
    expected = {"a": 0.0, "b": 0.0}
    for number, calls in enumerate(looks, start=1):
        meters.look([(task, waits) for task, waits in calls if task is not None], float(number))
        for task in expected:
            own = [waiting for whose, waiting in calls if whose == task]
            expected[task] += bool(own) and all(own)
    assert held(meters) == {task: seconds for task, seconds in expected.items() if seconds}


def test_no_more_tasks_and_models_are_remembered_than_the_limit() -> None:
    meters = TaskMeters()
    for number in range(MOST_TASKS + 5):
        meters.count_call(f"t{number}", "m", USED, answered=True)
    assert len(meters.by_task) == MOST_TASKS
    assert "t0" not in meters.by_task
    for number in range(MOST_MODELS + 5):
        meters.count_call("t9", f"m{number}", USED, answered=True)
    usage = meters.by_task["t9"].usage
    assert len(usage) <= MOST_MODELS + 1
    assert sum(used.input_tokens for used in usage.values()) == 100 * (MOST_MODELS + 6)


@pytest.mark.parametrize(
    "name",
    [
        "t1",
        "",
        ".",
        PROVEN.partition(".")[2],
        PROVEN.replace("t1.", "t2."),
        PROVEN[:-1],
        PROVEN + "0",
        f"t1.{'0' * 64}",
        f"t1.{signature(b'k' * 32, 'task of a call', b't1')}",
        "t" * 100_000 + PROVEN,
        PROVEN.upper(),
        "t1.\xe9" + PROVEN,
    ],
)
def test_a_name_without_the_proof_of_this_installation_is_no_name(name: str) -> None:
    async def scene(world: World) -> None:
        waits = world.ask(headers={HEADER: name})
        await world.pass_time(10)
        assert [call.identity.task for call in world.desk.calls] == [None]
        await world.until_over(waits)
        assert dict(world.desk.task_meters.by_task) == {}

    play([wall(20), Step()], scene)


def test_names_that_callers_invent_push_no_meter_out() -> None:
    async def scene(world: World) -> None:
        await world.until_over(world.ask(headers=dict(named_task("t1"))))
        before = meter_of(world)
        invented = [world.ask(headers={HEADER: f"t{number}"}) for number in range(50)]
        await world.pass_time(5)
        await world.until_over(*invented)
        assert dict(world.desk.task_meters.by_task) == {"t1": before}

    play([Step(), wall(20), *[Step()] * 50], scene)


@given(st.text(max_size=120), st.binary(max_size=32))
def test_a_proof_is_of_one_name_and_one_key(name: str, key: bytes) -> None:
    header = dict(named_task(name)).get(HEADER, "")
    plain = bool(name) and name.isascii() and name.isprintable() and len(name) <= 100
    assert task_in(installation_key(), header.encode()) == (name if plain else None)
    assert task_in(key, header.encode()) is None


def test_a_meter_that_begins_anew_says_so() -> None:
    meters = TaskMeters()
    meters.count_call("t", "m", USED, answered=True)
    first = meters.by_task["t"].epoch
    meters.count_call("t", "m", USED, answered=True)
    assert meters.by_task["t"].epoch == first
    for number in range(MOST_TASKS):
        meters.count_call(f"t{number}", "m", USED, answered=True)
    meters.count_call("t", "m", USED, answered=True)
    assert meters.by_task["t"].epoch != first
    other = TaskMeters()
    other.count_call("t", "m", USED, answered=True)
    assert other.by_task["t"].epoch != meters.by_task["t"].epoch
