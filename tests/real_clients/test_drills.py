"""The real Claude Code, old and new, comes through every drill behind Jackline."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.drills.claude_client import ClaudeFleet, InstalledClaude
from jackline.drills.conversation import MAIN
from jackline.drills.drill import CrewPart
from jackline.drills.drill_run import FIRST, CrewRun, DrillOptions, Side
from jackline.drills.environment import open_gateway
from jackline.drills.evaluation import Figures, RequestHistory, check_requirements
from jackline.errors import UnreadableError
from jackline.journal import JournalReader
from jackline.state_dir import StateDir
from tests.real_clients.clients import claude_binary
from tests.real_clients.foreign_parts import drilled, part_named
from tests.real_clients.old_client import VERSION, old_claude_binary

pytestmark = pytest.mark.real_client

SPEED = 20.0
# Here a whole turn of the client has to pass while the outage lasts.
UNHURRIED = 10.0
NEW = "2.1.325"


def client(version: str) -> InstalledClaude:
    found = InstalledClaude.named(old_claude_binary() if version == VERSION else claude_binary())
    assert found.version == version
    return found


def run(version: str, part: CrewPart, side: Side = Side.JACKLINE) -> Figures:
    """What becomes of a part's crew as sub-agents of this client."""
    means = DrillOptions(version, partial(ClaudeFleet, client(version)), open_gateway, SPEED)
    return event_loop.run(CrewRun(part, side, means).run())


@pytest.mark.parametrize("version", [VERSION, NEW])
def test_a_throttle_storm_is_not_noticed_by_any_sub_agent(version: str, tmp_path: Path) -> None:
    part, state = part_named("throttle-storm"), tmp_path / "state"
    means = DrillOptions(
        version, partial(ClaudeFleet, client(version)), partial(open_gateway, state=state), SPEED
    )
    ours = event_loop.run(CrewRun(part, Side.JACKLINE, means).run())
    assert (ours.finished, ours.errors_seen, ours.misled) == (8, 0, 0)
    assert ours.reasons["429"] > 0, "the storm was met, and not by the client"
    with JournalReader(StateDir(state).journal) as journal:
        calls = journal.calls(0, math.inf, 10_000)
    throttled, siblings = (
        [call.waited for call in calls if (part.bystander_model in call.model) is is_sibling]
        for is_sibling in (False, True)
    )
    assert max(siblings) < max(throttled) / 2, "siblings on another model do not wait with them"


def test_bare_the_older_client_loses_every_throttled_sub_agent() -> None:
    bare = run(VERSION, part_named("throttle-storm"), Side.BARE)
    assert (bare.finished, bare.died) == (2, 6)
    assert all("not your usage limit" in words for words in bare.died_of)


@pytest.mark.parametrize("version", [VERSION, NEW])
def test_sub_agents_wait_for_a_near_reset_and_finish(version: str) -> None:
    ours = run(version, part_named("session-limit", 0, real_client=True))
    assert (ours.finished, ours.errors_seen) == (16, 0)
    assert ours.reasons["429"] > 0
    assert ours.sent_into_the_wall <= 1


@pytest.mark.parametrize("version", [VERSION, NEW])
def test_a_reset_too_far_away_is_told_by_the_client_in_its_own_words(version: str) -> None:
    ours = run(version, part_named("session-limit", 1, real_client=True))
    assert (ours.died, ours.unfinished, ours.stopped_otherwise) == (16, 0, 0)
    assert ours.sent_into_the_wall <= 1


@pytest.mark.parametrize("version", [VERSION, NEW])
def test_an_outage_is_outlived_by_every_sub_agent(version: str) -> None:
    ours = run(version, part_named("outage-one-lane"))
    assert (ours.finished, ours.misled, ours.died) == (12, 0, 0)
    assert ours.wasted > 0, "the outage was met, and not by the client"


def test_what_is_no_claude_code_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="not a Claude Code"):
        InstalledClaude.named(tmp_path / "absent")


def there_and_back(name: str, away: str) -> Figures:
    """Jackline's side of a drill whose session moved away in one turn and came back in another."""
    part = part_named(name, real_client=True)
    means = DrillOptions(NEW, partial(ClaudeFleet, client(NEW)), open_gateway, UNHURRIED)
    running = CrewRun(part, Side.JACKLINE, means)
    ours = event_loop.run(running.run())
    missed = [one for one in check_requirements(part, ours, ours, UNHURRIED) if not one.met]
    assert missed == []
    made = RequestHistory.from_ledgers(running.evidence.ledgers, running.evidence.agents)
    hosts = [one.host for one in made if one.agent == MAIN and one.completed]
    assert (hosts[0], hosts[-1], away in hosts) == (FIRST, FIRST, True)
    return ours


def test_an_outage_moves_a_session_and_its_sub_agents_elsewhere_and_back() -> None:
    ours = there_and_back("outage-failover", "second")
    assert (ours.finished, ours.errors_seen, ours.misbound) == (18, 0, 0)
    assert ours.wasted > 0, "the outage was met, and not by the client"


def test_a_session_with_tools_goes_on_with_another_family_and_returns_to_claude() -> None:
    ours = there_and_back("outage-family", "gpt")
    assert (ours.finished, ours.errors_seen, ours.misbound) == (18, 0, 0)
    assert ours.providers["gpt"]["useful"] >= 6


def come_through(name: str) -> Figures:
    """What became of a drill's crew as sub-agents of the older client, once all is as demanded."""
    part = part_named(name, real_client=True)
    return drilled(part, partial(ClaudeFleet, client(VERSION)), SPEED)


def test_only_the_sub_agents_on_the_failing_model_move() -> None:
    ours = come_through("model-degraded")
    assert (ours.bystanders_moved, ours.not_moved) == (0, 0)


def test_a_dead_network_is_named_and_outlived_by_every_sub_agent() -> None:
    ours = come_through("edge-down")
    assert ours.missing_status_texts == 0


def test_a_narrow_bridge_carries_every_sub_agent() -> None:
    ours = come_through("bridge-limits")
    assert ours.providers["bridge"]["useful"] > 20
