"""The real Codex, which dies of a 429 without Retry-After and storms on 5xx, is shielded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.drills.drill import CrewPart
from jackline.drills.drill_clock import DrillClock
from jackline.drills.environment import open_gateway
from jackline.providers.settings import UpstreamKind, UpstreamSettings
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.ledger import RequestLedger
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule, Say
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import ServiceSettings
from tests.real_clients.codex import CodexFleet, Told, ask_codex, codex_binary
from tests.real_clients.foreign_parts import drilled, part_of

pytestmark = pytest.mark.real_client

SPEED = 20.0
KIND = UpstreamKind.OPENAI_RESPONSES
MODEL, SIBLING = "gpt-5.5", "gpt-5-mini"
STEADY = ServiceSettings(first_byte=1.0, first_byte_spread=0.0, tokens_per_second=60)


@dataclass(frozen=True)
class Run:
    told: Told
    ledger: RequestLedger


def run(place: Path, fault: Fault | None = None, *, bare: bool = False) -> Run:
    """A task with two commands at once; the fault begins with its second request."""
    codex_binary()

    async def main() -> Run:
        def hear(asked: ClientRequest) -> Reply:
            if asked.turn == 0:
                commands = ("echo looked-left", "echo looked-right")
                return Say("I look.", tuple(("exec_command", {"cmd": one}) for one in commands))
            return Say("Both were looked at." if "looked-" in asked.results else "Lost.")

        faults = [] if fault is None else [fault]

        def struck(asked: ClientRequest) -> Reply:
            reply = hear(asked)
            if faults and asked.turn == 0:
                server.playing.add_fault(faults.pop())
            return reply

        mind = ReplyScript((Rule(struck),))
        settings = ProviderSettings(service=STEADY)
        async with SimulatorServer(settings, mind, speed=SPEED, clients_hurry=True) as server:
            if bare:
                told = await ask_codex(server.url, place / "home", "Look twice.")
            else:
                upstream = UpstreamSettings("openai", f"{server.url}/v1", KIND)
                async with open_gateway([upstream], DrillClock(SPEED)) as door:
                    told = await ask_codex(door.url, place / "home", "Look twice.")
            return Run(told, server.playing.provider.ledger)

    return event_loop.run(main())


def assert_done(told: Told) -> None:
    assert (told.code, told.last_words, list(told.errors)) == (0, "Both were looked at.", [])
    assert sorted(told.ran.values()) == ["looked-left\n", "looked-right\n"]


def test_a_task_with_tools_passes_as_it_is(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert_done(done.told)
    assert (done.ledger.useful, done.ledger.wasted) == (2, 0)


@pytest.mark.parametrize(
    "effect", [Effect.THROTTLED, Effect.SERVER_ERROR, Effect.RESET, Effect.CUT]
)
def test_trouble_passes_unseen_and_few_requests_meet_it(tmp_path: Path, effect: Effect) -> None:
    done = run(tmp_path, Fault(effect, until=30))
    assert_done(done.told)
    # Bare, it asks thirty times in 25 s.
    assert 0 < done.ledger.wasted < 25, "the trouble was met, and not by the client"


def test_bare_a_429_without_a_wait_is_the_end(tmp_path: Path) -> None:
    done = run(tmp_path, Fault(Effect.THROTTLED), bare=True)
    assert done.told.code != 0
    assert done.ledger.wasted == 1, "it does not even ask again"


# --- drills -----------------------------------------------------------------------------------


def codex_part(name: str, agents: int, rounds: int, models: tuple[str, ...] = (MODEL,)) -> CrewPart:
    codex_binary()
    return part_of(name, KIND, agents=agents, rounds=rounds, models=models)


def test_an_outage_moves_every_codex_elsewhere_and_back() -> None:
    ours = drilled(codex_part("outage-failover", agents=3, rounds=9), CodexFleet, SPEED)
    assert ours.wasted > 0, "the outage was met, and not by the client"
    assert ours.providers["second"]["useful"] >= 3
    assert ours.reasons["400"] > 0, "the other house cannot read what this one has encrypted"


def test_only_the_model_that_fails_moves() -> None:
    part = codex_part("model-degraded", agents=4, rounds=5, models=(MODEL, SIBLING))
    faults = tuple(replace(one, model=MODEL) for one in part.faults)
    ours = drilled(replace(part, faults=faults, bystander_model=SIBLING), CodexFleet, SPEED)
    assert (ours.bystanders_moved, ours.not_moved) == (0, 0)


def test_a_dead_network_is_named_and_outlived() -> None:
    ours = drilled(codex_part("edge-down", agents=3, rounds=4), CodexFleet, SPEED)
    assert ours.missing_status_texts == 0


def test_a_narrow_bridge_is_not_stormed_by_codex() -> None:
    ours = drilled(codex_part("bridge-limits", agents=5, rounds=6), CodexFleet, SPEED)
    assert ours.providers["bridge"]["useful"] > 20
