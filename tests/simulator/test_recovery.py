"""A provider comes back slowly, and a herd breaks it again."""

from __future__ import annotations

from jackline.simulator.exchange import SimRequest
from jackline.simulator.faults import Effect, Fault, Recovery, RecoveryPhase, RecoverySettings
from jackline.simulator.provider import ProviderModel, ProviderSettings
from jackline.simulator.time_model import seeded_random
from tests.simulator.http_client import play


def test_capacity_ramps_from_a_tenth_to_all_in_two_minutes() -> None:
    recovery = Recovery(RecoverySettings(streams=100), begins=60.0)
    assert [round(recovery.capacity(t)) for t in (60, 120, 180, 500)] == [10, 55, 100, 100]
    assert recovery.on_arrival(59.0, 0) is RecoveryPhase.DOWN
    assert recovery.on_arrival(60.0, 9) is RecoveryPhase.OPEN
    assert recovery.on_arrival(60.0, 10) is RecoveryPhase.OVERLOADED
    assert recovery.on_arrival(180.0, 500) is RecoveryPhase.OPEN


def test_a_herd_collapses_it_for_a_minute_and_the_ramp_begins_again() -> None:
    recovery = Recovery(RecoverySettings(streams=19), begins=0.0)
    herd = 0
    while recovery.on_arrival(1.0, 0) is not RecoveryPhase.COLLAPSING:
        herd += 1
    assert herd == 11, "10 + 3 x (2.0 of 19 streams) / 19 x 5 arrivals in five seconds"
    assert recovery.on_arrival(60.9, 0) is RecoveryPhase.DOWN
    assert recovery.on_arrival(61.0, 0) is RecoveryPhase.OPEN
    assert recovery.ends == 181.0


def test_a_patient_trickle_never_collapses_it() -> None:
    recovery = Recovery(RecoverySettings(streams=19), begins=0.0)
    assert {recovery.on_arrival(t / 2, 0) for t in range(240)} == {RecoveryPhase.OPEN}


def test_it_collapses_a_bounded_number_of_times() -> None:
    fault = Fault(Effect.ENVOY, until=10.0, recovery=RecoverySettings(streams=8))
    provider = ProviderModel(ProviderSettings(faults=(fault,)), seeded_random(1))
    play(provider, [(i / 10, SimRequest(service=5.0)) for i in range(12_000)])
    reasons = provider.ledger.reasons
    assert reasons["503"] > 8 * 60 * 9, "the outage came back eight times"
    assert provider.ledger.entries[-1].why == "completed"
    assert reasons["529"] > 0
