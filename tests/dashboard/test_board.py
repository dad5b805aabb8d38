"""The document that the page shows, and what changes in it."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from jackline.agents.prices import dollars
from jackline.control.board import (
    AGENTS_AT_A_TIME,
    MAX_WAITING,
    PAST,
    Board,
    Facts,
    FlowFacts,
    WaitReason,
    delta,
    waiting_rows,
)
from jackline.control.fleet import Fleet, LiveCall
from jackline.control.observatory import Burn
from jackline.events import AttemptFailed, CallEnded, LaneChanged, ServiceNoted
from jackline.lane_id import LaneId
from jackline.states import AgentState
from tests.dashboard.fleets import merged
from tests.lane_ids import lane_id
from tests.planted import KEY, PROMPT

EPOCH = 1_000_000.0
_PARTS = st.dictionaries(
    st.sampled_from(["head", "lanes", "runs"]),
    st.dictionaries(st.sampled_from("abcd"), st.integers() | st.lists(st.integers(), max_size=2)),
)


def ended(
    at: float,
    agent: str = "a",
    *,
    outcome: str = "answered",
    took: float = 5.0,
    waited: float = 0.0,
) -> CallEnded:
    lane = LaneId("anthropic", "claude-opus-4-8", "12ab")
    who = ("claude-opus-4-8", "s1", agent, None, "run1", True, 200, 1)
    return CallEnded(at, f"c{at}{agent}", outcome, lane, *who, waited, took, None, 100, 20, 0, 0)


class Page:
    """Merges what it receives, as the script in the browser does."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, Any]] = {}
        self.rows: dict[str, Any] = {}
        self.stretches: dict[str, tuple[int, list[int]]] = {}

    def take(self, shown: dict[str, Any]) -> None:
        shown = msgspec.json.decode(msgspec.json.encode(shown))
        if "schema" in shown:
            self.__init__()  # type: ignore[misc]
        for name, news in shown.items():
            if name == "agents":
                for key, row in news.items():
                    if row is None:
                        del self.rows[key]
                        self.stretches.pop(key, None)
                    else:
                        self.rows[key] = row
            elif name == "stretches":
                for key, (first, flat) in news.items():
                    self.extend(key, first, flat)
            elif isinstance(news, dict):
                part = self.parts.setdefault(name, {})
                for key, value in news.items():
                    if value is None:
                        part.pop(key, None)
                    else:
                        part[key] = value

    def extend(self, key: str, first: int, flat: list[int]) -> None:
        begins, known = self.stretches.get(key, (first, []))
        if first < begins or first > begins + len(known) // 3:
            begins, known = first, []
        self.stretches[key] = (begins, known[: (first - begins) * 3] + flat)

    def bars(self, key: str) -> list[int]:
        return self.stretches.get(key, (0, []))[1]


class World:
    """A fleet, and a board that looks at it."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.burn = Burn(dollars)
        self.board = Board(EPOCH)
        self.live: list[LiveCall] = []
        self.flows = FlowFacts({}, {}, {}, {})
        self.news: list[Any] = []

    def end(self, event: CallEnded) -> None:
        self.fleet.call_ended(event)
        self.burn.calls_ended([event])

    def look(self, at: float) -> dict[str, Any]:
        head = {"verdict": "Nothing is under way."}
        facts = Facts(at, head, {}, self.live, self.fleet, self.burn, EPOCH, self.news, self.flows)
        change = self.board.update(facts)
        while (more := self.board.more()) is not None:
            assert len(more.get("agents", ())) <= AGENTS_AT_A_TIME  # type: ignore[arg-type]
            for name, part in more.items():
                known = change.setdefault(name, part)
                if isinstance(known, dict) and isinstance(part, dict):
                    known.update(part)
        return change

    def page(self) -> Page:
        page = Page()
        for piece in self.board.pieces():
            page.take(piece)
        return page


@given(_PARTS, _PARTS)
def test_a_document_and_its_delta_make_the_next_document(
    before: dict[str, dict[str, object]], after: dict[str, dict[str, object]]
) -> None:
    names = before.keys() | after
    before = {name: before.get(name, {}) for name in names}
    after = {name: after.get(name, {}) for name in names}
    assert merged(before, delta(before, after)) == after


def test_what_did_not_change_is_not_reported_again() -> None:
    world = World()
    world.end(ended(EPOCH + 10))
    assert "agents" in world.look(EPOCH + 11)
    assert set(world.look(EPOCH + 12)) == {"at"}


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["end", "wait", "look", "come"]),
        st.sampled_from(["", "a", "b", "c"]),
        st.floats(0.2, 400.0),
    ),
    max_size=40,
)


@given(_STEPS)
def test_who_follows_the_changes_sees_what_a_newcomer_sees(
    steps: list[tuple[str, str, float]],
) -> None:
    """Whatever happens, in whatever order: old watchers and new ones agree."""
    world, now = World(), EPOCH
    world.look(now)
    follower = world.page()
    for what, agent, after in steps:
        now += after
        if what == "end":
            world.live = [call for call in world.live if call.agent != agent]
            world.end(ended(now, agent, took=min(after, 30.0), waited=after / 50))
        elif what == "wait":
            live = LiveCall(
                "s1", agent, "run1", "m", LaneId("l#1"), now, AgentState.PARKED, "parked", now + 60
            )
            world.live = [call for call in world.live if call.agent != agent] + [live]
        follower.take(world.look(now))
    newcomer = world.page()
    assert follower.parts == newcomer.parts
    assert follower.rows == newcomer.rows
    for key in newcomer.rows:
        # The one who was there all the time may remember more of what is past the edge.
        shown = newcomer.bars(key)
        assert follower.bars(key)[-len(shown) :] == shown or not shown


def test_an_agent_that_waits_says_for_what_and_until_when() -> None:
    world = World()
    until = EPOCH + 900
    world.live = [
        LiveCall(
            "s1",
            "a",
            "",
            "m",
            LaneId("up", "m", "1"),
            EPOCH,
            AgentState.PARKED,
            "up/m is parked",
            until,
        )
    ]
    world.look(EPOCH + 30)
    row = world.page().rows["s1|a"]
    assert (row["state"], row["why"], row["until"]) == ("parked", "up/m is parked", until)
    assert row["lane"] == "up/m"
    assert row["open"] == [[0, None, list(AgentState).index(AgentState.PARKED)]]


def test_the_wait_before_an_answer_is_drawn_as_a_wait() -> None:
    world = World()
    waited = (EPOCH, AgentState.THROTTLED)
    call = LiveCall(
        "s1", "a", "", "m", lane_id("l"), EPOCH + 60, AgentState.ANSWERING, "", None, waited
    )
    world.live = [call]
    world.look(EPOCH + 90)
    states = list(AgentState)
    assert world.page().rows["s1|a"]["open"] == [
        [0, 600, states.index(AgentState.THROTTLED)],
        [600, None, states.index(AgentState.ANSWERING)],
    ]


def test_of_several_calls_the_one_that_waits_is_shown() -> None:
    world = World()
    answering = LiveCall("s1", "a", "", "m", lane_id("l"), EPOCH, AgentState.ANSWERING, "", None)
    waiting = LiveCall("s1", "a", "", "m", lane_id("l"), EPOCH, AgentState.QUEUED, "full", None)
    world.live = [answering, waiting, answering]
    world.look(EPOCH + 1)
    assert world.page().rows["s1|a"]["state"] == "queued"


def test_a_flow_knows_that_its_agent_has_ended_before_silence_shows_it() -> None:
    world = World()
    world.end(ended(EPOCH + 10, "task-1"))
    world.look(EPOCH + 11)
    assert world.page().rows["s1|task-1"]["state"] == "between calls"
    world.flows = FlowFacts({}, {}, {}, {"task-1": AgentState.FINISHED})
    assert world.look(EPOCH + 12)["agents"]["s1|task-1"]["state"] == "finished"


def test_an_agent_whose_run_is_parked_is_parked_however_long_it_takes() -> None:
    world = World()
    world.end(ended(EPOCH + 10, "task-1"))
    world.look(EPOCH + 11)
    wakes = EPOCH + 5 * 3600
    rest = {"task-1": WaitReason("the quota is gone", wakes)}
    world.flows = FlowFacts({}, {}, {}, {"task-1": AgentState.PARKED}, wait_reasons=rest)
    for at in (EPOCH + 12, EPOCH + 12 + PAST, wakes - 1):
        world.look(at)
        row = world.page().rows["s1|task-1"]
        assert (row["state"], row["why"], row["until"]) == ("parked", "the quota is gone", wakes)
    # It wakes a little later than was thought, and the page hears of it.
    world.flows = FlowFacts(
        {},
        {},
        {},
        {"task-1": AgentState.PARKED},
        wait_reasons={"task-1": WaitReason("", wakes + 9)},
    )
    assert world.look(wakes)["agents"]["s1|task-1"]["until"] == wakes + 9


def test_a_tool_that_takes_hours_is_no_end_of_its_agent() -> None:
    world = World()
    world.end(ended(EPOCH + 10, "task-1"))
    world.flows = FlowFacts({}, {}, {}, {"task-1": AgentState.BETWEEN})
    world.look(EPOCH + 2 * PAST)
    assert world.page().rows["s1|task-1"]["state"] == "between calls"


def test_agents_that_were_silent_for_an_hour_are_taken_away() -> None:
    world = World()
    world.end(ended(EPOCH + 10))
    world.look(EPOCH + 11)
    assert world.look(EPOCH + 11 + PAST)["agents"] == {"s1|a": None}
    assert world.page().rows == {}


def test_silence_is_reported_in_the_second_in_which_it_has_a_new_name() -> None:
    world = World()
    world.end(ended(EPOCH + 10))
    for later, word in ((1, "between calls"), (120, "quiet"), (121, None), (900, "finished")):
        shown = world.look(EPOCH + 10 + later).get("agents")
        if word is None:
            assert shown is None, "nothing is sent twice"
        else:
            assert world.page().rows["s1|a"]["state"] == word


def test_an_end_that_was_reported_is_shown_at_once() -> None:
    world = World()
    world.end(ended(EPOCH + 10))
    world.look(EPOCH + 11)
    world.fleet.ended("s1", None, EPOCH + 12)
    world.look(EPOCH + 12)
    assert world.page().rows["s1|a"]["state"] == "finished"


def test_calls_without_a_session_belong_to_nobodys_timeline() -> None:
    world = World()
    world.live = [LiveCall("", "", "", "m", lane_id("l"), EPOCH, AgentState.QUEUED, "", None)]
    world.look(EPOCH + 1)
    assert world.page().rows == {}


def test_a_second_of_quiet_is_no_work_for_thousands_of_agents() -> None:
    """Only agents that have changed are read."""
    world = World()
    for number in range(2000):
        world.end(ended(EPOCH + 10, f"agent-{number}"))
    world.look(EPOCH + 11)
    world.end(ended(EPOCH + 12, "agent-7"))
    assert set(world.look(EPOCH + 13)["agents"]) == {"s1|agent-7"}


def test_a_large_fleet_comes_in_pieces() -> None:
    world = World()
    for number in range(1200):
        world.end(ended(EPOCH + 10, f"agent-{number}"))
    world.look(EPOCH + 11)
    pieces = list(world.board.pieces())
    assert max(len(piece.get("agents", ())) for piece in pieces) <= AGENTS_AT_A_TIME  # type: ignore[arg-type]
    assert len(world.page().rows) == 1200


def test_burn_adds_up_to_what_the_calls_used() -> None:
    world = World()
    world.end(ended(EPOCH + 10))
    world.end(ended(EPOCH + 70, "b"))
    world.look(EPOCH + 80)
    page = world.page()
    minutes = page.parts["burn"].values()
    assert sum(lanes["anthropic/claude-opus-4-8"][0] for lanes in minutes) == 240
    assert page.parts["spend"]["today"]["tokens"] == 240
    assert page.parts["spend"]["runs"]["run1"]["calls"] == 2


def test_events_are_reported_as_text_and_without_fingerprints() -> None:
    world = World()
    lane = LaneId("anthropic", "m", "12ab")
    why = f"{lane} is parked: its limit is used up"
    world.news = [
        LaneChanged(EPOCH, lane, "parked", why, EPOCH + 60),
        ServiceNoted(EPOCH + 1, "started", "http://127.0.0.1:1"),
    ]
    world.look(EPOCH + 2)
    first, second = world.page().parts["events"].values()
    assert first["who"] == "anthropic/m"
    assert first["what"] == "parked: anthropic/m is parked: its limit is used up"
    assert second["what"] == "started: http://127.0.0.1:1"


def test_a_lost_call_shows_why() -> None:
    world = World()
    call = ended(EPOCH + 10, outcome="refused")
    assert call.lane is not None
    failure = AttemptFailed(
        EPOCH + 9, call.call, call.lane, "server_error", None, 500, None, 1.0, None, "it said 500"
    )
    world.fleet.attempt_failed(failure)
    world.end(call)
    world.look(EPOCH + 11)
    row = world.page().rows["s1|a"]
    assert (row["state"], row["why"]) == ("failed", "it said 500")
    assert KEY not in repr(row)
    assert PROMPT not in repr(row)


def waiting_call(number: int, **turn: Any) -> dict[str, Any]:
    who = {"session": "s1", "agent": None, "label": "", "model": "m", "lane": "a/m"}
    return {
        "call": f"c{number}",
        "why": "a/m is parked",
        "since": EPOCH,
        "turn": turn or None,
    } | who


def test_of_those_who_wait_the_first_are_reported_with_the_reason_for_their_place() -> None:
    turn = {
        "place": 1,
        "rank": "lapsed",
        "cached_tokens": 900,
        "cached_until": EPOCH - 0.4,
        "cost_tokens": 1000,
        "why": "it lost its cache of 900 tokens",
    }
    rows = waiting_rows([waiting_call(1, **turn), *(waiting_call(n) for n in range(2, 5000))])
    assert len(rows) == MAX_WAITING
    first, second = rows["c1"], rows["c2"]
    assert (first["order"], first["rank"], first["cost"]) == (0, "lapsed", 1000)
    assert (first["cached"], first["cached_until"]) == (900, EPOCH)
    assert first["why"] == "it lost its cache of 900 tokens"
    assert (second["rank"], second["why"]) == ("", "a/m is parked")
