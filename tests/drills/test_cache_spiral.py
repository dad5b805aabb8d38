"""The drill of prompt caches passes, shows the cost of bare, and fails without care for caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jackline import event_loop
from jackline.drills.builtin_client import AgentEnd, AgentRecord
from jackline.drills.cache_spiral import (
    LOAD,
    SpiralFigures,
    cache_spiral,
)
from jackline.drills.catalogue import all_drills, drill_named
from jackline.drills.drill import ProgramFigures, ProgramPart
from jackline.drills.drill_run import (
    BuiltinFleet,
    DrillOptions,
    DrillResult,
    PartResult,
    ProgramRun,
    Side,
)
from jackline.drills.environment import open_gateway
from jackline.drills.evaluation import RequirementResult, check_requirements
from jackline.simulator.exchange import SimRequest
from jackline.simulator.ledger import LedgerEntry, RequestLedger
from jackline.simulator.prompt_cache import Hit
from tests.hiccups import tried_again_after_a_hiccup

HICCUP = 0.3
# Twice as fast as it is shown.
HURRIED = 80.0
# The gateway reads the first part of the name, the simulated vendor the second.
COUNTS_CACHED_TOKENS = "claude-3-5-haiku/claude-opus-4-8"


def the_part() -> ProgramPart:
    (part,) = drill_named("cache-spiral").programs
    return part


def played(part: ProgramPart, side: Side) -> SpiralFigures:
    """The figures of one side of the drill in scaled time."""
    options = DrillOptions("-", BuiltinFleet, open_gateway, HURRIED)
    figures = event_loop.run(ProgramRun(part, side, options).run())
    assert isinstance(figures, SpiralFigures)
    return figures


def results(figures: ProgramFigures) -> Sequence[RequirementResult]:
    return check_requirements(the_part(), figures, figures, HURRIED)


def missed(figures: ProgramFigures) -> list[str]:
    return [one.requirement.figure for one in results(figures) if not one.met]


@tried_again_after_a_hiccup(HICCUP)
def test_through_jackline_caches_stay_warm_and_everyone_finishes() -> None:
    ours = played(the_part(), Side.JACKLINE)
    assert missed(ours) == [], ours
    assert (ours.finished, ours.deaths) == (LOAD.agents, 0)


@tried_again_after_a_hiccup(HICCUP)
def test_bare_the_same_fleet_gives_up_again_and_again() -> None:
    # Not to its end: deaths come at once.
    load = replace(LOAD, time_limit=900.0)
    (part,) = cache_spiral(load).programs
    bare = played(part, Side.BARE)
    assert bare.deaths > 10
    assert bare.refused > 10 * LOAD.agents
    assert {"left_behind", "deaths"} <= set(missed(bare))


@tried_again_after_a_hiccup(HICCUP)
def test_a_gateway_that_ignores_caches_does_not_pass() -> None:
    """Where the gateway believes that a limit counts cached tokens, it sends calls in turn."""
    load = replace(LOAD, time_limit=2400.0, model=COUNTS_CACHED_TOKENS)
    (part,) = cache_spiral(load).programs
    blind = played(part, Side.JACKLINE)
    assert {"left_behind", "misses_percent", "extra_percent"} <= set(missed(blind)), blind
    assert blind.hits_percent < 60


def test_all_runs_it_and_its_table_has_time_hits_bill_and_failed_agents() -> None:
    assert "cache-spiral" in [drill.name for drill in all_drills()]
    ours = LOAD.figures(RequestLedger(), [AgentRecord("PART-1", LOAD.model)], 60.0)
    part = PartResult(the_part(), ours, ours, tuple(results(ours)))
    lines = DrillResult(cache_spiral(), "-", 40.0, (part,), complete=True).to_text()
    text = "\n".join(lines)
    for row in ("agents finished", "gave up", "minutes", "hit the cache, %", "bill, $"):
        assert row in text


# --- the figures ---------------------------------------------------------------------------


def answered(
    ledger: RequestLedger, session: str, prompt: int, *, read: int, written: int
) -> LedgerEntry:
    request = SimRequest(LOAD.model, prompt, 100, session=session)
    entry = ledger.opened(len(ledger), float(len(ledger)), request)
    ledger.admitted(entry, Hit(read, written, plain=prompt - read - written))
    entry.first_byte, entry.output_tokens = entry.arrived, 100
    return entry


def figures(ledger: RequestLedger, seconds: float = 600.0) -> SpiralFigures:
    done = AgentRecord("PART-1", LOAD.model)
    done.finish(AgentEnd.FINISHED, seconds)
    return LOAD.figures(ledger, [done], seconds)


def test_warm_conversations_cost_nothing_extra_and_all_their_later_calls_hit() -> None:
    ledger = RequestLedger()
    answered(ledger, "one", 6000, read=4000, written=2000)
    answered(ledger, "one", 7400, read=6000, written=1400)
    answered(ledger, "one", 8800, read=7400, written=1400)
    seen = figures(ledger)
    assert (seen.hits_percent, seen.misses_percent, seen.extra_percent) == (100.0, 0.0, 0.0)


def test_a_lapsed_conversation_is_a_miss_though_the_shared_prefix_was_read() -> None:
    ledger = RequestLedger()
    answered(ledger, "one", 6000, read=4000, written=2000)
    answered(ledger, "one", 7400, read=4000, written=3400)
    seen = figures(ledger)
    assert (seen.hits_percent, seen.misses_percent) == (0.0, 100.0)
    assert seen.extra_percent > 10


def test_deaths_count_though_the_user_resumed_the_agent() -> None:
    record = AgentRecord("PART-1", LOAD.model)
    record.finish(AgentEnd.DIED, 10.0, "API Error: 429")
    record.resumed()
    assert (record.end, record.died_of, record.ended) == (AgentEnd.WORKING, "", None)
    record.finish(AgentEnd.FINISHED, 20.0)
    seen = LOAD.figures(RequestLedger(), [record], 60.0)
    assert (seen.finished, seen.deaths, seen.left_behind) == (1, 1, 0)
