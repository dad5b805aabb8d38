"""The model plays limits, faults and silences the same way each time, and its books are right."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.simulator.exchange import (
    Accepted,
    Bytes,
    Completed,
    ConnectionBroken,
    How,
    ProviderEvent,
    Rejected,
    SimRequest,
)
from jackline.simulator.faults import Effect, Fault, RecoverySettings
from jackline.simulator.ledger import RequestOutcome
from jackline.simulator.limits import (
    BucketSettings,
    ConcurrencyCap,
    Counts,
    HiddenCapacitySettings,
)
from jackline.simulator.provider import ProviderModel, ProviderSettings
from jackline.simulator.time_model import ServiceSettings, seeded_random
from tests.simulator.http_client import kinds, play

SHARES = st.floats(0, 1)
FAULTS = st.builds(
    Fault,
    effect=st.sampled_from(Effect),
    start=st.floats(0, 300),
    until=st.floats(0, 600),
    model=st.sampled_from(["", "opus"]),
    share=SHARES,
    kills_in_flight=st.sampled_from([0.0, 0.7]),
    freezes_in_flight=st.booleans(),
    recovery=st.none() | st.builds(RecoverySettings, streams=st.floats(1, 30)),
    at_share=st.none() | SHARES,
    reset_announced=st.sampled_from(["headers", "text", "no"]),
)
SETTINGS = st.builds(
    ProviderSettings,
    buckets=st.lists(
        st.builds(
            BucketSettings,
            counts=st.sampled_from(Counts),
            per_minute=st.floats(10, 1e5),
            rejects_consume=st.booleans(),
        ),
        max_size=3,
    ).map(tuple),
    concurrency=st.none() | st.builds(ConcurrencyCap, streams=st.integers(1, 20)),
    hidden=st.none() | st.builds(HiddenCapacitySettings, streams=st.floats(1, 20)),
    faults=st.lists(FAULTS, max_size=3).map(tuple),
)
ARRIVALS = st.lists(
    st.tuples(
        st.floats(0, 30),
        st.builds(
            SimRequest,
            model=st.sampled_from(["claude-opus-4-8", "claude-sonnet-4-6"]),
            input_tokens=st.integers(1, 20_000),
            output_tokens=st.sampled_from([0, 1, 500]),
            stream=st.booleans(),
        ),
        st.none() | st.floats(0, 20),
    ),
    max_size=60,
)
Arrivals = list[tuple[float, SimRequest, float | None]]


def run(provider: ProviderModel, arrivals: Arrivals) -> list[ProviderEvent]:
    """Play arrivals; some clients hang up a while after they came."""
    events: list[ProviderEvent] = []
    leaving: list[tuple[float, int]] = []
    now = 0.0

    def catch_up(until: float) -> None:
        while True:
            due = [one for one in leaving if one[0] <= until]
            soon = provider.next_at()
            if due and (soon is None or min(due)[0] <= soon):
                leaving.remove(min(due))
                provider.cancel(*min(due))
            elif soon is not None and soon <= until:
                events.extend(provider.advance(soon))
            else:
                return

    for gap, request, patience in arrivals:
        now += gap
        catch_up(now)
        number = provider.arrive(now, request)
        if patience is not None:
            leaving.append((now + patience, number))
    catch_up(1e7)
    return events


@settings(max_examples=150)
@given(SETTINGS, ARRIVALS, st.integers(0, 1000))
def test_same_seed_same_trace_and_the_books_add_up(
    made_of: ProviderSettings, arrivals: Arrivals, seed: int
) -> None:
    provider = ProviderModel(made_of, seeded_random(seed))
    events = run(provider, arrivals)
    again = ProviderModel(made_of, seeded_random(seed))
    assert run(again, arrivals) == events
    ledger = provider.ledger
    assert ledger.to_json() == again.ledger.to_json()

    assert ledger.useful + ledger.wasted + ledger.open == len(ledger) == len(arrivals)
    assert ledger.after_wall <= sum(entry.wall for entry in ledger) <= len(ledger)
    ends = Counter(e.id for e in events if isinstance(e, Completed | Rejected | ConnectionBroken))
    assert all(count == 1 for count in ends.values())
    ended = {
        e.id for e in ledger if e.outcome not in (RequestOutcome.OPEN, RequestOutcome.CANCELLED)
    }
    assert set(ends) == ended
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert provider.in_flight <= ledger.open
    assert provider.next_at() is None


@given(ARRIVALS, st.integers(0, 1000))
def test_an_exchange_begins_before_it_lives_and_lives_before_it_ends(
    arrivals: Arrivals, seed: int
) -> None:
    provider = ProviderModel(ProviderSettings(), seeded_random(seed))
    events = run(provider, arrivals)
    for entry in provider.ledger:
        mine = [event for event in events if event.id == entry.id]
        if entry.outcome is RequestOutcome.COMPLETED:
            assert isinstance(mine[0], Accepted)
            assert isinstance(mine[-1], Completed)
            shares = [event.share for event in mine if isinstance(event, Bytes)]
            assert shares == sorted(shares)


def striking(effect: Effect, **more: object) -> ProviderModel:
    fault = Fault(effect, **more)  # type: ignore[arg-type]
    return ProviderModel(ProviderSettings(faults=(fault,)), seeded_random(1))


REQUEST = SimRequest(output_tokens=600)


@pytest.mark.parametrize(
    ("effect", "status"),
    [
        (Effect.THROTTLED, 429),
        (Effect.OVERLOADED, 529),
        (Effect.SERVER_ERROR, 500),
        (Effect.BAD_GATEWAY, 502),
        (Effect.ENVOY, 503),
        (Effect.ENVOY_OVERFLOW, 503),
        (Effect.CAPTIVE_PORTAL, 200),
        (Effect.QUOTA_WALL, 429),
    ],
)
def test_refusing_faults_answer_with_their_status(effect: Effect, status: int) -> None:
    (event,) = play(striking(effect), [(0.0, REQUEST)])
    assert isinstance(event, Rejected)
    assert event.status == status
    slow = status in (500, 502, 503)
    assert (0.5 if slow else 0.2) <= event.at <= (2.5 if slow else 0.5)


@pytest.mark.parametrize(
    ("effect", "how"),
    [
        (Effect.CUT, How.CUT),
        (Effect.CLEAN_END, How.CLEAN_END),
        (Effect.ERROR_EVENT, How.ERROR_EVENT),
    ],
)
def test_a_stream_breaks_where_the_fault_says(effect: Effect, how: How) -> None:
    events = play(striking(effect, at_share=0.25), [(0.0, REQUEST)])
    broken = events[-1]
    assert isinstance(broken, ConnectionBroken)
    assert (broken.how, round(broken.share, 6)) == (how, 0.25)
    assert isinstance(events[0], Accepted)


def test_connections_break_before_a_byte() -> None:
    for effect, how in ((Effect.RESET, How.RESET), (Effect.REFUSED, How.REFUSED)):
        (event,) = play(striking(effect), [(0.0, REQUEST)])
        assert isinstance(event, ConnectionBroken)
        assert event.how is how


def test_a_hang_gives_no_event_and_ends_when_the_client_does() -> None:
    provider = striking(Effect.HANG)
    assert play(provider, [(0.0, REQUEST)]) == []
    assert provider.ledger.open == 1
    provider.cancel(30.0, 0)
    assert provider.ledger.entries[0].outcome is RequestOutcome.CANCELLED


def test_silence_begins_a_stream_and_then_holds_its_place() -> None:
    provider = striking(Effect.SILENCE, at_share=0.5)
    events = play(provider, [(0.0, REQUEST)])
    assert kinds(events) == ["Accepted", "Bytes"]
    assert provider.in_flight == 1
    assert events[-1].at < 10
    provider.cancel(100.0, 0)
    assert provider.in_flight == 0
    assert provider.ledger.entries[0].output_tokens == 300, "what was generated is spent"


def test_a_drip_is_slow_but_alive() -> None:
    provider = striking(Effect.SLOW_DRIP, slowness=10.0)
    events = play(provider, [(0.0, REQUEST)])
    assert isinstance(events[-1], Completed)
    assert 100 <= events[-1].at <= 105
    gaps = [b.at - a.at for a, b in itertools.pairwise(events)]
    assert max(gaps) <= 5.0 + 1e-6


def test_late_answers_are_healthy_and_a_brown_out_doubles_their_delay() -> None:
    late = striking(Effect.LATE, delay=12.0, delay_per_kilotoken=1.0)
    events = play(late, [(0.0, SimRequest(input_tokens=3_000, service=5.0))])
    assert isinstance(events[0], Accepted)
    assert isinstance(events[-1], Completed)
    assert 15.0 < events[0].at < 20.0
    assert events[-1].at == pytest.approx(20.0)
    brown = striking(Effect.LATE, delay=1.0, doubles_every=60.0)
    events = play(brown, [(0.0, REQUEST), (60.0, REQUEST), (120.0, REQUEST)])
    begun = [event.at for event in events if isinstance(event, Accepted)]
    waits = [at - sent for at, sent in zip(sorted(begun), (0.0, 60.0, 120.0), strict=True)]
    assert [round(later - waits[0]) for later in waits] == [0, 1, 3]


def test_all_wait_for_a_cold_model_once() -> None:
    service = ServiceSettings(first_byte=2.0, first_byte_spread=0.0, cold_start=90.0)
    provider = ProviderModel(ProviderSettings(service=service), seeded_random(1))
    requests = [(0.0, REQUEST), (30.0, REQUEST), (200.0, REQUEST)]
    begun = [event.at for event in play(provider, requests) if isinstance(event, Accepted)]
    assert begun == [92.0, 92.0, 202.0]


def test_an_outage_kills_its_share_of_open_streams_and_only_of_its_model() -> None:
    fault = Fault(Effect.SERVER_ERROR, start=10.0, until=60.0, model="opus", kills_in_flight=0.7)
    provider = ProviderModel(ProviderSettings(faults=(fault,)), seeded_random(1))
    models = ["claude-opus-4-8", "claude-sonnet-4-6"] * 200
    events = play(provider, [(0.0, SimRequest(model=model, service=30.0)) for model in models])
    killed = [event for event in events if isinstance(event, ConnectionBroken)]
    assert {event.at for event in killed} == {10.0}
    assert {models[event.id] for event in killed} == {"claude-opus-4-8"}
    assert 120 <= len(killed) <= 160


def test_a_freeze_stops_every_open_stream_silently() -> None:
    fault = Fault(Effect.HANG, start=10.0, until=60.0, freezes_in_flight=True)
    provider = ProviderModel(ProviderSettings(faults=(fault,)), seeded_random(1))
    events = play(provider, [(0.0, SimRequest(service=30.0)) for _ in range(5)])
    assert max(event.at for event in events) <= 10.0
    assert provider.ledger.open == 5


def test_a_share_of_requests_is_struck_and_the_window_is_half_open() -> None:
    provider = striking(Effect.OVERLOADED, start=10.0, until=20.0, share=0.3)
    play(provider, [(10.0 + i / 1000, REQUEST) for i in range(1000)])
    assert 250 <= provider.ledger.reasons["529"] <= 350
    edges = striking(Effect.OVERLOADED, start=10.0, until=20.0)
    play(edges, [(t, REQUEST) for t in (9.99, 10.0, 19.99, 20.0)])
    assert [entry.why for entry in edges.ledger] == ["completed", "529", "529", "completed"]


def test_faults_can_be_added_and_cleared_while_running() -> None:
    provider = ProviderModel(ProviderSettings(), seeded_random(1))
    handle = provider.add_fault(5.0, Fault(Effect.THROTTLED))
    provider.add_fault(5.0, Fault(Effect.OVERLOADED, start=50.0))
    provider.arrive(6.0, REQUEST)
    provider.clear_faults(7.0, handle)
    provider.arrive(8.0, REQUEST)
    provider.arrive(60.0, REQUEST)
    provider.clear_faults(61.0)
    provider.arrive(62.0, REQUEST)
    provider.advance(1000.0)
    assert [entry.why for entry in provider.ledger] == ["429", "completed", "529", "completed"]


def test_a_scheduled_fault_that_is_cleared_before_it_begins_kills_nothing() -> None:
    fault = Fault(Effect.SERVER_ERROR, start=10.0, kills_in_flight=1.0)
    provider = ProviderModel(ProviderSettings(faults=(fault,)), seeded_random(1))
    provider.arrive(0.0, SimRequest(service=30.0))
    provider.clear_faults(5.0)
    assert kinds(provider.advance(100.0))[-1] == "Completed"


def test_requests_into_a_wall_count_as_such_once_it_was_announced() -> None:
    fault = Fault(Effect.QUOTA_WALL, start=10.0, until=7210.0)
    provider = ProviderModel(ProviderSettings(faults=(fault,)), seeded_random(1))
    in_flight_together = [(10.0, REQUEST), (10.1, REQUEST)]
    later = [(60.0, REQUEST), (7210.0, REQUEST)]
    play(provider, [*in_flight_together, *later])
    assert [entry.wall for entry in provider.ledger] == [True, True, True, False]
    assert provider.ledger.after_wall == 1
    assert provider.ledger.useful == 1


def test_what_a_script_orders_strikes_this_request_alone() -> None:
    provider = ProviderModel(ProviderSettings(), seeded_random(1))
    provider.arrive(0.0, REQUEST, Fault(Effect.OVERLOADED))
    provider.arrive(0.0, REQUEST)
    provider.advance(100.0)
    assert [entry.why for entry in provider.ledger] == ["529", "completed"]


def test_an_event_before_the_cancel_is_still_returned() -> None:
    provider = ProviderModel(ProviderSettings(), seeded_random(1))
    provider.arrive(0.0, SimRequest(service=3.0))
    provider.cancel(4.0, 0)
    assert provider.next_at() == 4.0
    assert kinds(provider.advance(4.0))[-1] == "Completed"
    assert provider.ledger.useful == 1


def test_a_healthy_service_looks_like_the_design_says() -> None:
    provider = ProviderModel(ProviderSettings(), seeded_random(7))
    events = play(provider, [(0.0, SimRequest()) for _ in range(4000)])
    ends = sorted(event.at for event in events if isinstance(event, Completed))
    firsts = sorted(event.at for event in events if isinstance(event, Accepted))
    assert math.isclose(ends[2000], 16.0, rel_tol=0.05)
    assert math.isclose(firsts[2000], 1.2, rel_tol=0.05)
    assert (ends[0], ends[-1]) == (5.0, 60.0)


@given(st.lists(st.floats(0, 200), max_size=30))
def test_a_clock_that_jumps_back_does_not_turn_time_around(times: list[float]) -> None:
    provider = ProviderModel(ProviderSettings(), seeded_random(1))
    events: list[ProviderEvent] = []
    for time in times:
        provider.arrive(time, REQUEST)
        events += provider.advance(time)
    events += provider.advance(1e6)
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert provider.ledger.useful == len(times)
