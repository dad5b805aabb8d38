"""The five drills, watched in a browser and in `top`: what is shown agrees with the ledger."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from jackline import event_loop
from jackline.drills import lost_subagent
from jackline.drills.catalogue import drill_named
from jackline.drills.drill import CrewPart, ProgramPart
from jackline.drills.drill_run import BuiltinFleet, CrewRun, DrillOptions, Side
from jackline.drills.environment import open_gateway
from jackline.drills.live_view import LiveView
from jackline.drills.session_limit_flow import WallSide, as_a_flow
from jackline.flows.records import CallState, RunRecord
from jackline.flows.store import open_run_store, run_store_url
from tests.dashboard.browser import opened
from tests.dashboard.watched_drill import Entry, WatchedDrill, ask
from tests.dashboard.watched_page import (
    PIECE,
    WAITING,
    Seen,
    answering_is_true,
    at_once,
    completed,
    pictures,
    settled,
    waiting_is_true,
    watch,
)
from tests.hiccups import tried_again_after_a_hiccup

# By themselves: in scaled time a machine that is too busy counts as a slow provider.
pytestmark = pytest.mark.usefixtures("young_day")
# What each agent did at one moment of the past, by the stretches that are drawn.
SLEPT = """async (at) => {
	const { state } = await import("/_jackline/page/feed.js");
	const tenths = (at - state.epoch) * 10;
	const then = (flat, i) => i % 3 === 0 && flat[i] <= tenths && tenths < flat[i + 1];
	return [...state.stretches.values()].flatMap(({ flat }) =>
		flat.flatMap((_, i) => then(flat, i) ? [state.agentStates[flat[i + 2]]] : []));
}"""
Play = Callable[[LiveView], Awaitable[object]]


def crew(part: CrewPart, speed: float) -> Play:
    def play(lookout: LiveView) -> Awaitable[object]:
        means = DrillOptions("-", BuiltinFleet, open_gateway, speed, live_view=lookout)
        return CrewRun(part, Side.JACKLINE, means).run()

    return play


async def program(part: ProgramPart, folder: Path, speed: float, lookout: LiveView) -> None:
    """Play Jackline's side of a part."""
    async with part.open_side(folder, speed, live_view=lookout) as side:
        await side.jackline()


def watched(
    drill: WatchedDrill, page: Page, pictured: Path, trouble: Callable[[Seen], bool]
) -> tuple[list[Seen], dict[str, Any]]:
    """Every look at the page until the drill was over, and what `top` showed during the trouble."""
    tops: list[dict[str, Any]] = []

    def once(seen: Seen) -> None:
        if not tops and trouble(seen):
            tops.append(drill.top())
            pictures(page, pictured.parent, f"{pictured.name}-trouble")

    looks = watch(page, drill, once)
    assert tops, [seen.states for seen in looks]
    pictures(page, pictured.parent, f"{pictured.name}-end")
    return looks, tops[0]


def top_is_true(top: dict[str, Any], entries: list[Entry], give: float) -> None:
    """Each agent that `top` names does what it says there, by the ledger."""
    by_state = top["agents_by_state"]
    low, high = at_once(entries, top["at"], give)
    assert low <= by_state["answering"] <= high
    everyone = {entry.agent for entry in entries}
    assert sum(by_state[word] for word in WAITING) <= len(everyone) - low
    assert {agent["agent"] for agent in top["agents"]} <= everyone
    for agent in top["agents"]:
        before = [e for e in entries if e.agent == agent["agent"] and (e.ended or 9e9) < top["at"]]
        # A call that has just ended may be shown with the next look.
        assert abs(agent["tokens"] - sum(e.tokens for e in completed(before))) <= _latest(before)


def _latest(entries: list[Entry]) -> int:
    return max((entry.tokens for entry in completed(entries)), default=0)


def told_now(drill: WatchedDrill) -> str:
    """The verdict as `jackline status` has it."""
    return str(ask(drill.url, "/_jackline/status")["verdict"])


def sums_are_true(page: Page, drill: WatchedDrill) -> Seen:
    """Tokens, calls and attempts on the page are the ledger's and the journal's."""
    entries = drill.ledger()
    done = completed(entries)
    words = f"{sum(entry.tokens for entry in done):,} tokens in {len(done)} calls"
    seen = settled(page, lambda now: words in now.money)
    calls, _ = drill.journal()
    assert sum(call.outcome == "answered" for call in calls) == len(done)
    # In a drill every agent that was refused comes back, and is answered.
    last = {(call.session, call.agent): call.outcome for call in calls}
    assert set(last.values()) <= {"answered", "shortened", "client_left"}
    survived = sum(call.outcome in ("refused", "broken") for call in calls)
    again = f" {survived:,} refused and survived," if survived else ""
    held = sum(call.waited >= 1 and call.outcome == "answered" for call in calls)
    assert f"{held} call{'s' * (held != 1)} held and delivered,{again} 0 passed" in seen.verdict
    # In a drill minutes pass in seconds, and silence has a new name after two of them: what is said
    # everywhere at once is the same.
    settled(page, lambda now: now.verdict == told_now(drill) == drill.top()["verdict"])
    top = drill.top()
    assert top["spend"]["tokens_today"] == sum(entry.tokens for entry in done)
    by_agent = {agent["agent"]: agent for agent in top["agents"]}
    for agent in {entry.agent for entry in entries}:
        own = [entry for entry in entries if entry.agent == agent]
        mine = [call for call in calls if call.agent == agent]
        assert by_agent[agent]["tokens"] == sum(entry.tokens for entry in completed(own))
        assert by_agent[agent]["calls"] == len(mine)
        # A request that was reset before a byte came back is sent anew within its attempt.
        resets = sum(entry.why == "reset" for entry in own)
        assert len(own) - resets <= sum(call.attempts for call in mine) <= len(own)
    return seen


def agent_page_is_true(page: Page, drill: WatchedDrill) -> None:
    """The page of the agent with the most failures lists each of them, and its sums."""
    calls, failed = drill.journal()
    owner = {call.call: call.agent or "" for call in calls}
    counts: dict[str, int] = {}
    for each in failed:
        counts[owner[each.call]] = counts.get(owner[each.call], 0) + 1
    unlucky = max(counts, key=lambda agent: counts[agent])
    mine = [call for call in calls if call.agent == unlucky]
    page.goto(f"{drill.url}/#/agent/{mine[0].session}/{unlucky}")
    detail = page.locator(".detail")
    attempts = sum(call.attempts for call in mine)
    expect(detail).to_contain_text(f"{len(mine)} calls in the last day, {attempts} attempts")
    table = detail.get_by_role("region", name="attempts that failed").locator("tbody tr")
    expect(table).to_have_count(counts[unlucky])
    kinds = sorted(each.kind for each in failed if owner[each.call] == unlucky)
    found = [row.split("\t")[1].partition(",")[0] for row in table.all_inner_texts()]
    assert sorted(found) == kinds
    own = [entry for entry in drill.ledger() if entry.agent == unlucky]
    statuses = {str(row.split("\t")[3]) for row in table.all_inner_texts()} - {"none", "200"}
    assert statuses <= {entry.why for entry in own}
    page.goto(f"{drill.url}/#/")
    page.locator(".fleet").wait_for()


def hour(at: float) -> str:
    return time.strftime("%H:%M", time.localtime(round(at)))


def told_as(reset: int) -> set[str]:
    """The reset's minute; on its way through two clocks a part of its last second may be lost."""
    return {hour(reset), hour(reset - 0.6)}


def minutes_after(words: str, text: str) -> set[str]:
    """The minutes of the moments that follow these words; the page names the second, too."""
    return {each[:5] for each in re.findall(rf"{words} ([\d:]+)", text)}


def stored(drill: WatchedDrill) -> tuple[RunRecord, list[CallState], int]:
    """The one run of this drill, its calls' states, and their tokens."""

    async def read() -> tuple[RunRecord, list[CallState], int]:
        engine = open_run_store(run_store_url(drill.state.folder))
        try:
            (run,) = await engine.runs()
            calls = await engine.calls(run.run_id)
            return run, [call.state for call in calls], sum(call.tokens for call in calls)
        finally:
            await engine.close()

    # The browser's own loop runs in this thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(event_loop.run, read()).result()


# --- the drills -----------------------------------------------------------------------------------


@tried_again_after_a_hiccup(0.5)
def test_throttle_storm(browser: Browser, tmp_path: Path) -> None:
    """429 "not your usage limit" for 6 of 8 agents, for 90 seconds."""
    speed = 10.0
    (part,) = drill_named("throttle-storm").crews
    with WatchedDrill(crew(part, speed)) as drill, opened(browser, drill.url) as page:
        looks, top = watched(
            drill, page, tmp_path / "throttle-storm", lambda s: s.count("throttled") >= 5
        )
        entries = drill.ledger()
        give = 2 * PIECE * speed + 1
        answering_is_true(looks, entries, give)
        waiting_is_true(looks, entries, give)
        top_is_true(top, entries, give)
        refused = [e for e in entries if e.why == "429"]
        assert refused
        stormy = [seen for seen in looks if seen.count("throttled")]
        assert min(seen.at for seen in stormy) >= min(e.arrived for e in refused) - give
        for seen in stormy:
            sonnet, haiku = seen.cards
            assert "◐ throttled" in sonnet
            # Alone in the moment between two tries each call has a reason of its own.
            assert re.search("asked to slow down|limit for now|finding out|[1-9] of", sonnet)
            assert "● open" in haiku, "who is not throttled is not said to be"
            assert "0 held" in haiku
            assert seen.states.get("throttled") == int(re.findall(r"(\d+) held", sonnet)[0])
        sums_are_true(page, drill)
        agent_page_is_true(page, drill)


@tried_again_after_a_hiccup(0.3)
def test_outage_of_the_only_lane(browser: Browser, tmp_path: Path) -> None:
    """529, 503, hangs and broken streams, one after the other, and nowhere else to go."""
    speed = 30.0
    (part,) = drill_named("outage-one-lane").crews
    with WatchedDrill(crew(part, speed)) as drill, opened(browser, drill.url) as page:
        looks, top = watched(
            drill, page, tmp_path / "outage", lambda s: s.count("upstream down") >= 10
        )
        entries = drill.ledger()
        give = 2 * PIECE * speed + 1
        answering_is_true(looks, entries, give)
        waiting_is_true(looks, entries, give)
        top_is_true(top, entries, give)
        for seen in looks:
            (card,) = seen.cards
            if "✕ down" in card:
                # It is not called down before it refused, nor when it answers again.
                behind = [e for e in entries if (e.ended or 9e9) < seen.at]
                assert any(e.outcome != "completed" for e in behind)
                assert "tried again" in card
                assert "is down" in seen.verdict
            if "✕ down" in card:
                # Attempts that are silent, or still speak, are listened to and not hung up on.
                listened = re.search(r"(\d+) of \d+ in flight", card)
                still = 0 if listened is None else int(listened[1])
                assert seen.count("answering") <= max(2, still)
        sums_are_true(page, drill)
        agent_page_is_true(page, drill)


@tried_again_after_a_hiccup(0.3)
def test_session_limit_as_a_flow(browser: Browser, tmp_path: Path) -> None:
    """A quota wall in the middle of a flow, too far away for calls to be held."""
    speed, many, abreast = 30.0, 16, 8
    part = as_a_flow(many, abreast, wall_after=20)
    sides: list[WallSide] = []

    async def play(lookout: LiveView) -> None:
        async with part.open_side(tmp_path / "drill", speed, live_view=lookout) as side:
            assert isinstance(side, WallSide)
            sides.append(side)
            await side.run_flow()

    with WatchedDrill(play) as drill, opened(browser, drill.url) as page:
        looks, top = watched(
            drill,
            page,
            tmp_path / "session-limit",
            # Until all are parked, answers that had begun before the wall still stream.
            lambda s: s.count("parked") >= abreast,
        )
        entries = drill.ledger()
        give = 2 * PIECE * speed + 1
        answering_is_true(looks, entries, give)
        top_is_true(top, entries, give)
        resets = drill.announced(sides[0].resets_at)
        refused = min(e.arrived for e in entries if e.wall)
        at_the_wall = [s for s in looks if refused + 60 < s.at < resets - give]
        assert len(at_the_wall) > 3
        # Runs do not all wake in the moment of a reset.
        wakes = top["runs"][0]["wake_at"]
        assert resets - 1 < wakes < resets + 120
        for seen in at_the_wall:
            (card,), (shown,) = seen.cards, seen.runs
            finished = len({e.agent for e in entries if e.arrived < refused}) - seen.count("parked")
            assert seen.states == {
                word: count
                for word, count in (("parked", abreast), ("finished", finished))
                if count
            }
            assert "■ parked" in card
            assert told_as(resets) & minutes_after("to reset,", card)
            assert "its limit is used up" in card
            # Who wakes within a minute of the reset waits for the reset.
            wall = told_as(resets) | {hour(wakes)}
            assert wall & minutes_after("■ parked until", shown)
            assert f"{abreast} parked" in shown
            assert wall & minutes_after(f"{abreast} parked until", seen.verdict)
        assert top["runs"][0]["state"] == "parked"
        assert {a["state"] for a in top["agents"]} <= {"parked", "finished"}
        assert {a["until"] for a in top["agents"] if a["state"] == "parked"} == {round(wakes)}
        settled(page, lambda now: now.states == {"finished": many})
        run, states, tokens = stored(drill)
        assert states == [CallState.DONE] * many
        # The wall stays where it was in the timeline: violet, not silence.
        for name in page.evaluate(SLEPT, at_the_wall[-1].at):
            assert name == "parked", page.evaluate(SLEPT, at_the_wall[-1].at)
        words = (f"{many} of {many} agents ok", f" · {tokens:,} tokens", "✓ finished")
        settled(page, lambda now: all(word in now.runs[0] for word in words))
        assert tokens == run.tokens == sum(entry.tokens for entry in completed(entries))
        sums_are_true(page, drill)


def of_two_processes(
    looks: list[Seen], drill: WatchedDrill, resets: float, stale: float
) -> tuple[list[Seen], list[Seen]]:
    """Looks at an agent at work, before and after its wall, and looks at it parked."""
    entries = drill.ledger()
    began, refused = entries[0].arrived, min(e.arrived for e in entries if e.wall)
    went_on = min(e.arrived for e in entries if e.arrived > refused and not e.wall)
    before = [s for s in looks if began + stale < s.at < refused - stale]
    # It has finished a while before its process has ended.
    after = [s for s in looks if went_on + stale < s.at < entries[-1].arrived]
    # Each process that meets the wall is at work for a moment.
    met = [call.at for call in drill.journal()[0] if call.outcome == "refused"]
    quiet = [s for s in looks if all(abs(s.at - at) > stale for at in met)]
    at_the_wall = [s for s in quiet if refused < s.at < resets]
    assert before
    assert at_the_wall
    assert after
    return before + after, at_the_wall


@tried_again_after_a_hiccup(0.2)
def test_lost_subagent(browser: Browser, tmp_path: Path) -> None:
    """An agent with a rented machine meets a wall; its process ends, and another resumes it."""
    speed = 120.0
    (part,) = drill_named("lost-subagent").programs

    def play(lookout: LiveView) -> Awaitable[object]:
        return program(part, tmp_path / "drill", speed, lookout)

    walls: dict[int, dict[str, Any]] = {}
    tops: list[dict[str, Any]] = []

    def once(seen: Seen) -> None:
        walls.update((wall["handle"], wall) for wall in drill.faults())
        if not tops and seen.count("parked") == 1:
            # The second process may come while it is asked for, and is at work for a moment.
            top = drill.top()
            if top["runs"][0]["state"] == "parked":
                tops.append(top)
                expect(page.locator(".flows")).to_contain_text("gpu-1: held by")
                pictures(page, tmp_path, "lost-subagent-trouble")

    with WatchedDrill(play) as drill, opened(browser, drill.url) as page:
        looks = watch(page, drill, once)
        assert drill.opened == 1, "its two processes come through one gateway"
        (top,) = tops
        entries = drill.ledger()
        give = 2 * PIECE * speed + 1
        top_is_true(top, entries, give)
        (wall,) = walls.values()
        assert wall["until"] - wall["start"] == pytest.approx(lost_subagent.RESETS_IN)
        resets = drill.announced(wall["until"])
        wakes = top["runs"][0]["wake_at"]
        assert resets - 1 < wakes < resets + 120
        # A look at the store of runs may be a few seconds old, and they are minutes here.
        at_work, at_the_wall = of_two_processes(looks, drill, resets - give, 4 * speed)
        for seen in at_work:
            assert seen.count("between calls", "answering") == 1, "a long tool is no end"
            assert "● running" in seen.runs[0]
        # Each process has a moment of its own to wake at, soon after the reset.
        minutes = {hour(resets + later) for later in (-0.6, 0, 60, 120)}
        for seen in at_the_wall:
            assert seen.states == {"parked": 1}
            assert minutes & minutes_after("parked until", seen.runs[0])
            assert told_as(resets) & minutes_after("to reset,", seen.cards[0])
        (agent,) = top["agents"]
        assert agent["state"] == "parked"
        assert agent["until"] == round(wakes)
        run, states, tokens = stored(drill)
        assert states == [CallState.DONE] * 3
        settled(page, lambda now: now.states == {"finished": 1})
        settled(page, lambda now: f"; 2 steps · {tokens:,} tokens" in now.runs[0])
        assert tokens == sum(entry.tokens for entry in completed(entries))
        expect(page.locator(".flows")).not_to_contain_text("gpu-1")
        assert drill.top()["runs"][0]["state"] == "finished" == run.state


def test_cascade(browser: Browser, tmp_path: Path) -> None:
    """Fourteen calls in one turn, of which one fails: the agent goes on, and the page shows so."""
    (part,) = drill_named("cascade").programs

    def play(lookout: LiveView) -> Awaitable[object]:
        return program(part, tmp_path / "drill", 1.0, lookout)

    with WatchedDrill(play) as drill, opened(browser, drill.url) as page:
        looks = watch(page, drill, lambda _seen: None)
        assert {word for seen in looks for word in seen.states} <= {"answering", "between calls"}
        run, states, tokens = stored(drill)
        assert states == [CallState.DONE]
        settled(page, lambda now: now.states == {"finished": 1})
        words = f"1 of 1 agent ok · {tokens:,} tokens"
        settled(page, lambda now: words in now.runs[0] and "✓ finished" in now.runs[0])
        assert tokens == sum(entry.tokens for entry in completed(drill.ledger()))
        sums_are_true(page, drill)
        pictures(page, tmp_path, "cascade-end")
        page.goto(f"{drill.url}/#/run/{run.run_id}")
        expect(page.locator(".detail .tree")).to_contain_text("PART-1")
        pictures(page, tmp_path, "cascade-run")
