"""The built-in client reacts to faults as the real Claude Code 2.1.197 does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline import event_loop
from jackline.drills.builtin_client import (
    API_KEY_POLICY,
    SUBSCRIBER_POLICY,
    AgentEnd,
    AgentPlan,
    AgentRecord,
    BuiltinClient,
    ClientRetryPolicy,
    RetryAction,
)
from jackline.drills.drill_clock import DrillClock
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.ledger import RequestLedger
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import HANGUP, Fail, Reply, ReplyScript, Rule, Say
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import AT_ONCE, seeded_random
from tests.hiccups import steadily

QUICK = 1000.0
# At this speed so long a pause is five minutes for a client.
HICCUP = 0.2
DONE = "All is well."
TOOL = ("Bash", {"command": "ls"})
OVERLOADED = Fail(529, "overloaded_error", "Overloaded")


def meet(
    rules: Sequence[Rule],
    *,
    fault: Fault | None = None,
    policy: ClientRetryPolicy = API_KEY_POLICY,
    speed: float = QUICK,
    agent: str = "",
) -> tuple[AgentRecord, RequestLedger]:
    """The record of one agent that gets these answers, and the provider's ledger."""

    async def run() -> tuple[AgentRecord, RequestLedger]:
        script = ReplyScript(tuple(rules), Say(DONE))
        settings = ProviderSettings(service=AT_ONCE, faults=() if fault is None else (fault,))
        async with SimulatorServer(settings, script, speed=1.0) as server:
            plan = AgentPlan("one", "TASK: look", DONE, agent=agent)
            client = BuiltinClient(plan, server.url, DrillClock(speed), seeded_random(1), policy)
            await client.run()
            return client.record, server.playing.provider.ledger

    return steadily(lambda: event_loop.run(run()), HICCUP)


@pytest.mark.parametrize(
    ("reply", "posts"),
    [
        (Fail(429, "rate_limit_error", "Rate limited"), 11),
        (Fail(429, "rate_limit_error", "x", {"retry-after": "61"}), 1),
        (Fail(429, "rate_limit_error", "x", {"x-should-retry": "false"}), 1),
        (Fail(400, "invalid_request_error", "x", {"x-should-retry": "true"}), 11),
        (OVERLOADED, 3),
        (Fail(500), 11),
        (Fail(503), 11),
        (Fail(408), 11),
        (Fail(401, "authentication_error", "no"), 11),
        (Fail(403), 1),
        (Fail(400), 1),
        (Fail(402), 1),
        (Fail(413), 1),
        (Fail(404, "not_found_error", "model: x"), 2),
        (HANGUP, 11),
    ],
)
def test_a_lasting_refusal_is_met_as_often_as_the_real_client_tries(
    reply: Reply, posts: int
) -> None:
    record, ledger = meet([Rule(reply)])
    assert (record.end, record.posts, len(ledger)) == (AgentEnd.DIED, posts, posts)
    assert len(record.errors) == posts


@pytest.mark.parametrize(
    ("effect", "posts"), [(Effect.CAPTIVE_PORTAL, 2), (Effect.BAD_GATEWAY, 11)]
)
def test_pages_of_an_edge(effect: Effect, posts: int) -> None:
    record, ledger = meet([], fault=Fault(effect))
    assert (record.end, len(ledger)) == (AgentEnd.DIED, posts)


def test_a_subscriber_never_retries_a_429() -> None:
    record, ledger = meet([Rule(Fail(429, "rate_limit_error", "x"))], policy=SUBSCRIBER_POLICY)
    assert (record.end, len(ledger)) == (AgentEnd.DIED, 1)


def test_a_subscriber_goes_on_through_overload_as_long_as_through_other_errors() -> None:
    record, ledger = meet([Rule(OVERLOADED)], policy=SUBSCRIBER_POLICY)
    assert (record.end, len(ledger)) == (AgentEnd.DIED, 11)


def test_a_retry_after_is_respected() -> None:
    refused = Fail(429, "rate_limit_error", "x", {"retry-after": "20"})
    record, ledger = meet([Rule(refused, call=0)], speed=20.0)
    assert (record.end, len(ledger)) == (AgentEnd.FINISHED, 2)
    first, second = ledger
    assert second.arrived - first.arrived >= 1.0


@pytest.mark.parametrize("effect", [Effect.CUT, Effect.CLEAN_END, Effect.ERROR_EVENT])
def test_a_stream_that_breaks_inside_a_block_is_requested_again_without_streaming(
    effect: Effect,
) -> None:
    record, ledger = meet([Rule(Fault(effect, at_share=0.5), call=0)])
    assert (record.end, len(ledger), ledger.useful) == (AgentEnd.FINISHED, 2, 1)
    assert len(record.errors) == 1


def test_five_minutes_of_silence_inside_a_stream_are_followed_by_a_request_without_streaming() -> (
    None
):
    record, ledger = meet([Rule(Fault(Effect.SILENCE, at_share=0.5), call=0)])
    assert (record.end, len(ledger)) == (AgentEnd.FINISHED, 2)
    first, second = ledger
    assert second.arrived - first.arrived >= 300 / QUICK


def test_no_headers_for_five_minutes_is_a_failure_that_is_retried() -> None:
    record, ledger = meet([Rule(Fault(Effect.HANG), call=0)])
    assert (record.end, len(ledger)) == (AgentEnd.FINISHED, 2)


def test_a_sub_agent_without_progress_for_ten_minutes_is_killed_and_the_main_thread_is_not() -> (
    None
):
    stuck = [Rule(Fault(Effect.HANG), call=call) for call in range(3)]
    assert meet(stuck, agent="a1")[0].end is AgentEnd.DIED
    assert meet(stuck)[0].end is AgentEnd.FINISHED


def test_an_overload_as_the_first_event_is_retried_twice_and_then_without_streaming() -> None:
    # A share of nothing still brings message_start, so the event is cut to before it.
    first = Fault(Effect.ERROR_EVENT, at_byte=0)
    record, ledger = meet([Rule(first, call=call) for call in range(3)])
    assert (record.end, len(ledger)) == (AgentEnd.FINISHED, 4)


def test_a_clean_end_after_a_whole_block_counts_as_success() -> None:
    record, ledger = meet([Rule(Fault(Effect.CLEAN_END, at_share=1.0), call=0)])
    assert (record.end, len(ledger)) == (AgentEnd.MISLED, 1)


@pytest.mark.parametrize("effect", [Effect.CUT, Effect.ERROR_EVENT])
def test_a_break_after_a_whole_block_of_text_is_final(effect: Effect) -> None:
    record, ledger = meet([Rule(Fault(effect, at_share=1.0), call=0)])
    assert (record.end, len(ledger)) == (AgentEnd.DIED, 1)


def test_tools_run_and_their_results_go_back_until_the_model_has_no_more() -> None:
    rules = [Rule(Say("Looking.", (TOOL, TOOL)), turn=turn) for turn in range(3)]
    record, ledger = meet(rules)
    assert (record.end, record.posts, ledger.useful) == (AgentEnd.FINISHED, 4, 4)
    assert record.errors == []


@given(
    retry=st.integers(1, 10),
    retry_after=st.none() | st.floats(0, 7200),
    draw=st.floats(0, 1),
)
def test_a_wait_is_never_shorter_than_retry_after_nor_longer_than_a_minute(
    retry: int, retry_after: float | None, draw: float
) -> None:
    wait = API_KEY_POLICY.delay(retry, retry_after, draw)
    if wait is None:
        assert retry_after is not None
        assert retry_after > API_KEY_POLICY.longest_retry_after
    else:
        assert 0.5 <= wait <= 60
        assert wait >= (retry_after or 0)


def test_a_subscriber_ignores_x_should_retry() -> None:
    assert SUBSCRIBER_POLICY.action(429, {"x-should-retry": "true"}) is RetryAction.GIVE_UP
    assert API_KEY_POLICY.action(429, {"x-should-retry": "true"}) is RetryAction.RETRY
