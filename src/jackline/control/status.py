"""The status of the gateway: the document, the agents by state, the verdict, and the status line.

Rules: (1) pure: facts and the time come in; no prompt, answer, key or token; (2) everything that
waits has its reason and its time; (3) whether anything needs a person is always mentioned; (4) an
agent is counted once, under the state of its own row; none is called "working", since between two
calls nobody can know it; (5) the status line is short when nothing is wrong; a state is a glyph and
a name, never colour alone; (6) the reason of a waiting call's place changes only when its meaning
does, or by the minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta

from jackline.control.fleet import WAITS, Fleet, LiveCall, calls_by_agent
from jackline.control.forecast import Forecast
from jackline.control.lane_status import (
    SAME_RESET,
    LaneStatus,
    closed_sentences,
    own_network,
    until_and_left,
    wall_of,
)
from jackline.control.needs import (
    RECENT_REFUSAL,
    REPEATED_WITHIN,
    Need,
    need_you,
    needs_sentence,
)
from jackline.control.text import counted, moment_text, whole_second
from jackline.failures.sentences import duration_in_words
from jackline.lanes.queue import Rank
from jackline.lanes.queue_positions import QueuePosition
from jackline.states import AgentState, LaneState

SCHEMA = "jackline.status/1"
_WORST_FIRST = (LaneState.PARKED, LaneState.DOWN, LaneState.RECOVERING, LaneState.THROTTLED)


@dataclass(frozen=True, slots=True)
class TurnStatus:
    """The place of a call among those that wait for its lane, counted from 1, and why.

    `rank` is aged, closing, normal, lapsed or new, in the order in which they go. The provider's
    prompt cache holds `cached_tokens` of its conversation, or held them until `cached_until`;
    `cost_tokens` is what it would take of the input limit now.
    """

    rank: str
    place: int
    cached_tokens: int
    cached_until: float | None
    cost_tokens: int
    out_of_turn_at: float | None
    why: str

    @classmethod
    def of(cls, turn: QueuePosition, wall_ahead: float, since: float, now: datetime) -> TurnStatus:
        """The turn of a call that waits since `since`; times of the lanes become dates."""
        cached_until = None if turn.cached_until is None else turn.cached_until + wall_ahead
        out_of_turn = None if turn.out_of_turn_at is None else turn.out_of_turn_at + wall_ahead
        later = ""
        if out_of_turn is not None and out_of_turn > now.timestamp():
            later = f"; it may go out of turn at {moment_text(out_of_turn, now)}"
        cache = f"its cache of {turn.cached:,} tokens"
        why = "the most urgent goes first"
        if turn.rank is Rank.LEAVING:
            why = "its client will soon wait no longer: it goes before those that can wait"
        elif turn.rank is Rank.AGED:
            minutes = timedelta(minutes=max(1, int((now.timestamp() - since) // 60)))
            why = f"it has waited for {duration_in_words(minutes)}: it goes out of turn"
        elif turn.rank is Rank.CLOSING and cached_until is not None:
            left = timedelta(seconds=max(1, whole_second(cached_until) - int(now.timestamp())))
            why = f"{cache} lapses in {duration_in_words(left)}: it goes before those that can wait"
        elif turn.rank is Rank.LAPSED:
            why = f"it lost {cache}; warm conversations go first{later}"
        elif turn.rank is Rank.NEW:
            why = f"it begins a conversation; those that have begun go first{later}"
        elif turn.cached and cached_until is not None:
            why = (
                f"{cache} holds until {moment_text(cached_until, now)}; the most urgent goes first"
            )
        return cls(
            rank=turn.rank.name.lower(),
            place=turn.place,
            cached_tokens=turn.cached,
            cached_until=cached_until,
            cost_tokens=round(turn.cost),
            out_of_turn_at=out_of_turn,
            why=why,
        )


@dataclass(frozen=True, slots=True)
class CallStatus:
    """One call that waits or runs; it has no turn while it is delayed, or a cap holds it."""

    call: str
    session: str | None
    agent: str | None
    tag: str | None
    model: str
    lane: str
    state: str
    why: str
    until: float | None
    since: float
    attempts: int
    label: str = ""
    turn: TurnStatus | None = None


@dataclass(frozen=True, slots=True)
class AgentCounts:
    """The agents of one moment, each counted once."""

    answering: int = 0
    waiting: Mapping[AgentState, int] = field(default_factory=dict)
    until: Mapping[AgentState, tuple[float, float]] = field(default_factory=dict)
    """When the first and the last of those that wait for this continue, as far as known."""
    failed: int = 0
    between: int = 0
    quiet: int = 0
    lost: int = 0
    """Of those that failed, how many are of no run and have not come back; see needs.py."""

    @property
    def held(self) -> int:
        """Those that wait for something outside of them."""
        return sum(self.waiting.values())

    @property
    def present(self) -> int:
        """Those that have a call under way, or had one a moment ago."""
        return self.answering + self.between + self.held

    @property
    def total(self) -> int:
        """All that have not ended."""
        return self.present + self.failed + self.quiet

    @classmethod
    def of(
        cls,
        live: Iterable[LiveCall],
        fleet: Fleet,
        agent_states: Mapping[str, AgentState],
        now: float,
        wait_reasons: Mapping[str, tuple[str, float | None]] | None = None,
    ) -> AgentCounts:
        """The present agents; for the mappings by task see `board.FlowFacts`."""
        calls = calls_by_agent(live)
        found = [(call.state, call.until) for call in calls.values()]
        lost = 0
        for key in fleet.known():
            member = fleet.member(key)
            if key in calls or member is None:
                continue
            state = agent_states.get(member.agent) or member.resting_state(now)
            since = now - member.last_end
            is_of_run = member.agent in agent_states
            lost += (
                state is AgentState.FAILED
                and not is_of_run
                and REPEATED_WITHIN <= since < RECENT_REFUSAL
            )
            if state is not AgentState.FAILED or since < RECENT_REFUSAL:
                found.append((state, (wait_reasons or {}).get(member.agent, ("", None))[1]))
        counts = Counter(state for state, _ in found)
        ends: dict[AgentState, tuple[float, float]] = {}
        for state, until in found:
            if until is not None and state in WAITS:
                first, last = ends.get(state, (until, until))
                ends[state] = (min(first, until), max(last, until))
        return cls(
            counts[AgentState.ANSWERING],
            {state: counts[state] for state in WAITS if counts[state]},
            ends,
            counts[AgentState.FAILED],
            counts[AgentState.BETWEEN],
            counts[AgentState.QUIET],
            lost,
        )

    def text(self, status: GatewayStatus, now: datetime) -> str:
        """What agents do and wait for; without agents the calls."""
        if not self.present and not self.failed:
            running, waiting = status.calls_in_flight, status.calls_waiting
            if not running and not waiting:
                return "Nothing is under way."
            return f"{counted(running, 'call')} running, {waiting or 'none'} waiting."
        counts = [(AgentState.BETWEEN, self.between)]
        counts += [(state, self.waiting.get(state, 0)) for state in WAITS]
        counts += [(AgentState.FAILED, self.failed), (AgentState.QUIET, self.quiet)]
        parts = [f"{self.answering:,} of {counted(self.total, 'agent')} {AgentState.ANSWERING}"]
        for state, count in counts:
            if not count:
                continue
            until = ""
            # Only parking has an hour that a person plans by.
            if state is AgentState.PARKED and state in self.until:
                first, last = (wall_of(each, status.lanes) for each in self.until[state])
                some = ", the first" if last - first > SAME_RESET else ""
                is_due = first <= now.timestamp()
                until = ", about to go on" if is_due else f"{some} {until_and_left(first, now)}"
            parts.append(f"{count:,} {state}{until}")
        return f"{', '.join(parts)}."


NO_AGENTS = AgentCounts()


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """The whole gateway."""

    at: float
    version: str
    url: str
    upstream: str
    started: float
    lanes: tuple[LaneStatus, ...]
    waiting: tuple[CallStatus, ...]
    calls_waiting: int
    calls_in_flight: int
    connections: int
    outcomes: Mapping[str, int]
    held_and_delivered: int
    joined: int
    input_tokens: int
    output_tokens: int
    journal_ok: bool
    journal_problem: str
    journal_lost: int = 0
    """Records that could not be saved, since the start."""
    journal_gap: str = ""
    """How many those are, since when and why; empty without any."""
    notes: tuple[str, ...] = ()
    calls_survived: int = 0
    """Passed on as failed; then their agents were answered, or wait again, or their run goes on."""
    answered_instead: str = ""
    """A sentence, while another upstream answers because the first is closed."""

    def to_json(self, sentence: str) -> dict[str, object]:
        """One JSON document, the verdict first."""
        return {"schema": SCHEMA, "verdict": sentence, **asdict(self)}

    def verdict(
        self, now: datetime, agents: AgentCounts = NO_AGENTS, needs: Sequence[Need] = ()
    ) -> str:
        """The sentences that every interface begins with; `needs` is what waits for a person."""
        parts = [agents.text(self, now), needs_sentence(needs)]
        network = own_network(self.lanes)
        if network is not None:
            parts.append(network)
        closed = (LaneState.PARKED, LaneState.DOWN)
        parts += closed_sentences(
            [lane for lane in self.lanes if lane.state in closed],
            now,
            agents.until.get(AgentState.PARKED),
        )
        if self.answered_instead:
            parts.append(self.answered_instead)
        slowed = [e.name for e in self.lanes if e.state == LaneState.THROTTLED and e.waiting]
        if slowed:
            parts.append(f"{', '.join(slowed)} asked to slow down.")
        delivered = self.held_and_delivered
        survived = self.calls_survived
        lost = self.outcomes.get("refused", 0) + self.outcomes.get("broken", 0) - survived
        again = f" {survived:,} refused and survived," if survived else ""
        parts.append(
            f"{counted(delivered, 'call')} held and delivered,{again} {lost:,} passed on as failed."
        )
        if not self.journal_ok:
            parts.append(f"The journal is not written: {self.journal_problem}.")
        if self.journal_gap:
            parts.append(f"The journal has a gap: {self.journal_gap}.")
        return " ".join(parts)

    def status_line(
        self,
        forecasts: Sequence[Forecast],
        now: datetime,
        agents: AgentCounts = NO_AGENTS,
        needs: Sequence[Need] = (),
    ) -> str:
        """One line for a terminal's status bar: the worst lane, agents, and the fullest window."""

        def clock(moment: float) -> str:
            at = datetime.fromtimestamp(moment, now.tzinfo)
            return f"{at:%H:%M}" if at.date() == now.date() else f"{at:%a %H:%M}"

        closed = [lane for lane in self.lanes if lane.state in _WORST_FIRST]
        if own_network(self.lanes) is not None:
            parts = [f"{LaneState.DOWN.glyph} your network seems down"]
        elif closed:
            worst = min(closed, key=lambda lane: _WORST_FIRST.index(LaneState(lane.state)))
            text = "paused by hand" if worst.paused else worst.state
            if not worst.paused and worst.state == LaneState.PARKED and worst.until is not None:
                text += f" until {clock(worst.until)}"
            parts = [f"{LaneState(worst.state).glyph} {worst.name} {text}"]
        else:
            parts = [f"{LaneState.OPEN.glyph} {LaneState.OPEN}"]
        if needs:
            parts.append(need_you(needs))
        if agents.held:
            parts.append(f"{agents.answering} of {agents.total} {AgentState.ANSWERING}")
        elif self.calls_waiting:
            parts.append(f"{self.calls_waiting} waiting")
        fullest = max(forecasts, key=lambda each: each.used, default=None)
        if fullest is not None and fullest.used >= 0.5:
            ends = ""
            if fullest.ends_at is not None and fullest.used < 1.0:
                ends = f", ends {clock(fullest.ends_at)}"
            parts.append(f"{fullest.window} window {fullest.used:.0%}{ends}")
        return "jackline " + " · ".join(parts)
