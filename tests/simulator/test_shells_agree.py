"""In memory and on a socket, the same requests meet the same fate."""

from __future__ import annotations

import http.client

from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.simulator.exchange import SimRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.ledger import RequestLedger
from jackline.simulator.limits import BucketSettings, Counts
from jackline.simulator.provider import ProviderModel, ProviderSettings
from jackline.simulator.server import ServerThread
from jackline.simulator.time_model import AT_ONCE, seeded_random
from tests.simulator.http_client import ask

MODELS = ["claude-opus-4-8", "claude-sonnet-4-6"]
# Effects that end by themselves; a hang lasts as long as its client's patience.
ENDING = [effect for effect in Effect if effect not in (Effect.HANG, Effect.SILENCE)]
FAULTS = st.builds(
    Fault,
    effect=st.sampled_from(ENDING),
    model=st.sampled_from(["", "opus"]),
    share=st.sampled_from([0.3, 0.7]),
)
# A bucket that hardly refills: what it lets in does not hang on real time.
BUCKETS = st.builds(
    BucketSettings,
    counts=st.just(Counts.REQUESTS),
    per_minute=st.just(0.001),
    burst_seconds=st.sampled_from([60_000.0 * n for n in (3, 10, 1000)]),
)


def fates(ledger: RequestLedger) -> list[tuple[str, str, str]]:
    return [(entry.model, entry.outcome, entry.why) for entry in ledger]


def in_memory(made_of: ProviderSettings, seed: int, models: list[str]) -> RequestLedger:
    provider = ProviderModel(made_of, seeded_random(seed))
    for number, model in enumerate(models):
        provider.arrive(float(number), SimRequest(model=model, output_tokens=50))
        provider.advance(number + 0.9)
    # On a socket, late answers are waited for.
    while (due := provider.next_at()) is not None:
        provider.advance(due)
    return provider.ledger


def on_a_socket(made_of: ProviderSettings, seed: int, models: list[str]) -> RequestLedger:
    with ServerThread(made_of, seed=seed) as server:
        for model in models:
            try:
                ask(server, model=model, stream=True)
            except (ConnectionError, http.client.HTTPException):
                continue
        return server.order(lambda playing: playing.provider.ledger)


@settings(max_examples=25)
@given(
    st.lists(FAULTS, max_size=3).map(tuple),
    st.lists(BUCKETS, max_size=1).map(tuple),
    st.lists(st.sampled_from(MODELS), max_size=12),
    st.integers(0, 100),
)
def test_the_same_requests_meet_the_same_fate(
    faults: tuple[Fault, ...], buckets: tuple[BucketSettings, ...], models: list[str], seed: int
) -> None:
    made_of = ProviderSettings(faults=faults, buckets=buckets, service=AT_ONCE)
    assert fates(on_a_socket(made_of, seed, models)) == fates(in_memory(made_of, seed, models))
