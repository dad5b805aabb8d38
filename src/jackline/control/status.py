"""The status of the gateway: the document, the agents by state, the verdict, and the status line.

Rules: (1) pure: facts and the time come in; no prompt, answer, key or token; (2) everything that
waits has its reason and its time; (3) whether anything needs a person is always said, also when
nothing does; (4) an agent is counted once, under the word of its own row on every face; nothing is
guessed: "working" is said of none, since between two calls nobody can know it; (5) the status line
is short when nothing is wrong; a state is a glyph and a word, never colour alone; (6) the reason of
a waiting call's place changes only when its meaning does, or by the minute.
Not here: each agent by itself (fleet.py, board.py), the order of calls (lanes/queue.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta

from jackline.control.fleet import Fleet, Key, LiveCall, resting
from jackline.control.forecast import Forecast
from jackline.control.text import counted, whole_second
from jackline.failures.sentences import duration_in_words, moment_in_words
from jackline.flows.records import ENDED
from jackline.lanes.queue import Rank
from jackline.lanes.queue_positions import QueuePosition
from jackline.states import AgentState, DerivedState, LaneState, RunState

SCHEMA = "jackline.status/1"


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A limit per minute, who gave its number (lanes/settings.py), and when its vendor did."""

    per_minute: float
    origin: str
    read_at: float | None = None


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """How one lane stands.

    `limits` are the shares left of its per-minute limits, `known_limits` those limits. `cause` is
    the kind of failure that closed it, and its variety, if a failure did.
    """

    name: str
    state: str
    why: str
    until: float | None
    in_flight: int
    window: int
    waiting: int
    limits: Mapping[str, float]
    cause: tuple[str, str | None] | None = None
    paused: bool = False
    """Whether a person has closed it."""
    known_limits: Mapping[str, LimitStatus] = field(default_factory=dict)


def lane_word(lane: Mapping[str, object]) -> str:
    """The word for how a lane stands, of a lane as the gateway tells it."""
    if not lane.get("paused"):
        return str(lane["state"])
    return (DerivedState.DRAINING if lane["in_flight"] else DerivedState.PAUSED).value


@dataclass(frozen=True, slots=True)
class TurnStatus:
    """Where a call stands among those that wait for its lane, and why.

    `rank` is aged, closing, normal, lapsed or new, in the order in which they go; `place` counts
    from 1. `cached_tokens` are what the provider's prompt cache holds of its conversation, or held
    until `cached_until`; `cost_tokens` what it would take of the input limit now.
    """

    rank: str
    place: int
    cached_tokens: int
    cached_until: float | None
    cost_tokens: int
    out_of_turn_at: float | None
    why: str


@dataclass(frozen=True, slots=True)
class CallStatus:
    """One call that waits or runs; `label` is what its flow calls the agent, if it has one.

    It has no turn while it stands in no line: it rests after a failure, or a cap holds it.
    """

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
class GatewayStatus:
    """Everything together."""

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
    """Records that will never be kept, since the start."""
    journal_gap: str = ""
    """How many those are, since when and why; empty without any."""
    notes: tuple[str, ...] = ()

    def to_json(self, sentence: str) -> dict[str, object]:
        """One JSON document, the verdict first."""
        return {"schema": SCHEMA, "verdict": sentence, **asdict(self)}


_ALONE = (AgentState.BETWEEN, AgentState.QUIET)
WAITS = (AgentState.PARKED, AgentState.DOWN, AgentState.THROTTLED, AgentState.QUEUED)
# A refused key is a person's matter until a call gets through, and no news after so long.
_REFUSED_LATELY = 900.0


@dataclass(frozen=True, slots=True)
class AgentCounts:
    """The agents of one moment: how many are answered, wait for what, failed, or are alone."""

    answering: int = 0
    waiting: Mapping[AgentState, int] = field(default_factory=dict)
    until: Mapping[AgentState, tuple[float, float]] = field(default_factory=dict)
    """When the first and the last of those that wait for this go on, as far as that is known."""
    failed: int = 0
    between: int = 0
    quiet: int = 0

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


NO_AGENTS = AgentCounts()


def count_agents(
    live: Iterable[LiveCall],
    fleet: Fleet,
    ended: Mapping[str, AgentState],
    now: float,
    rests: Mapping[str, tuple[str, float | None]] | None = None,
) -> AgentCounts:
    """The agents of now.

    `ended` is what runs know of agents that have no call under way, by task; `rests` is why those
    of them wait, and until when.
    """
    calls: dict[Key, LiveCall] = {}
    for call in live:
        key = (call.session, call.agent)
        known = calls.get(key)
        # Of several calls that one which waits, since that is what holds the agent up.
        if key != ("", "") and (known is None or known.state is AgentState.ANSWERING):
            calls[key] = call
    waiting: dict[AgentState, int] = {}
    until: dict[AgentState, tuple[float, float]] = {}

    def waits(state: AgentState, its_end: float | None) -> None:
        waiting[state] = waiting.get(state, 0) + 1
        if its_end is not None:
            first, last = until.get(state, (its_end, its_end))
            until[state] = (min(first, its_end), max(last, its_end))

    for call in calls.values():
        waits(call.state, call.until)
    answering, failed, alone = waiting.pop(AgentState.ANSWERING, 0), 0, dict.fromkeys(_ALONE, 0)
    for key in fleet.known():
        member = fleet.member(key)
        if key in calls or member is None:
            continue
        state = ended.get(member.agent) or resting(member, now)
        if state in alone:
            alone[state] += 1
        elif state is AgentState.FAILED and now - member.last_end < _REFUSED_LATELY:
            failed += 1
        elif state in WAITS:
            waits(state, (rests or {}).get(member.agent, ("", None))[1])
    return AgentCounts(
        answering, waiting, until, failed, alone[AgentState.BETWEEN], alone[AgentState.QUIET]
    )


def find_needs(
    runs: Mapping[str, object],
    lanes: Iterable[LaneStatus],
    refused: Mapping[str, float],
    now: float,
) -> tuple[str, ...]:
    """What waits for a person, in a few words each.

    `runs` as the store of runs tells them; `refused` is when each upstream last refused a key and
    has answered no call since.
    """
    told = [run for run in runs.values() if isinstance(run, Mapping)]
    found = [words for run in told if (words := _run_needs(run))]
    for lane in lanes:
        place = lane.name.partition("/")[0]
        if lane.paused and lane.waiting:
            held = counted(lane.waiting, "call")
            found.append(
                f"{lane.name} is paused by hand, {held} held: jackline upstream resume {lane.name}"
            )
        if lane.state == LaneState.PARKED and lane.cause is not None and lane.cause[0] == "billing":
            found.append(f"{place} takes no more calls: its credit is used up or its bill unpaid")
    found += [
        f"{place} refuses the key or login: sign in again"
        for place, at in refused.items()
        if now - at < _REFUSED_LATELY
    ]
    return tuple(dict.fromkeys(found))


def _run_needs(run: Mapping[str, object]) -> str:
    name = f"{run.get('flow')} ({run.get('run')})"
    if run.get("trusted") is False:
        accept = f"not written by this installation: jackline show {run.get('run')} --trust"
        return "" if run.get("state") in ENDED else f"{name} is not run, {accept}"
    if run.get("state") == DerivedState.CUT_OFF:
        return f"{name} was cut off: jackline resume {run.get('run')}"
    if run.get("state") == RunState.PARKED and run.get("wake_at") is None:
        step, why = f"jackline resume {run.get('run')}", str(run.get("why") or "")
        return (
            f"{name} is parked: {why}"
            if step in why
            else f"{name} is parked until you say so: {step}"
        )
    return ""


_TROUBLED = (LaneState.PARKED, LaneState.DOWN)
_CONNECTION = "network_edge"
_MOST_NEEDS = 3
# Resets that are told within so many seconds of each other are one hour to a person.
_SAME_HOUR = 60.0
_IN_BETWEEN = frozenset(("captive_portal", "dns", "tls", "proxy"))


def verdict(
    picture: GatewayStatus, now: datetime, crew: AgentCounts = NO_AGENTS, needs: Sequence[str] = ()
) -> str:
    """The sentence that every face begins with; `needs` is what waits for a person."""
    parts = [_agents(picture, crew, now), needs_you(needs)]
    network = own_network(picture.lanes)
    if network is not None:
        parts.append(network)
    parts += [_lane(lane, now) for lane in picture.lanes if lane.state in _TROUBLED]
    slowed = [e.name for e in picture.lanes if e.state == LaneState.THROTTLED and e.waiting]
    if slowed:
        parts.append(f"{', '.join(slowed)} asked to slow down.")
    delivered = picture.held_and_delivered
    lost = picture.outcomes.get("refused", 0) + picture.outcomes.get("broken", 0)
    parts.append(f"{counted(delivered, 'call')} held and delivered, {lost} passed on as failed.")
    if not picture.journal_ok:
        parts.append(f"The journal is not written: {picture.journal_problem}.")
    if picture.journal_gap:
        parts.append(f"The journal has a gap: {picture.journal_gap}.")
    return " ".join(parts)


def own_network(lanes: Sequence[LaneStatus]) -> str | None:
    """What is to be said when the fault is the user's own network; None when it is not.

    A lane that works proves that the network does. Where none does, and nothing but connections
    failed, it is the network: at once if something stands in between (a log-in page, a changed
    certificate) or no name can be looked up, else only if several upstreams are out of reach.
    """
    used = [lane for lane in lanes if lane.state != LaneState.OPEN or lane.in_flight]
    down = [lane for lane in used if lane.state == LaneState.DOWN]
    if not down or len(down) < len(used):
        return None
    causes = {lane.cause for lane in down if lane.cause is not None}
    if not causes or any(kind != _CONNECTION for kind, _ in causes):
        return None
    varieties = sorted({sub for _, sub in causes if sub})
    upstreams = {lane.name.partition("/")[0] for lane in down}
    if len(upstreams) < 2 and not _IN_BETWEEN & set(varieties):
        return None
    seen = f" ({', '.join(varieties)})" if varieties else ""
    return (
        f"Your own network is the likely cause{seen}: nothing else has failed. It is tried gently; "
        "calls go on by themselves when it is back."
    )


def needs_you(needs: Sequence[str]) -> str:
    """Whether a person is waited for, and by what."""
    if not needs:
        return "Nothing needs you."
    told = "; ".join(needs[:_MOST_NEEDS])
    more = len(needs) - _MOST_NEEDS
    rest = f"; and {more} more" if more > 0 else ""
    return f"{len(needs)} {'needs' if len(needs) == 1 else 'need'} you: {told}{rest}."


def _agents(picture: GatewayStatus, crew: AgentCounts, now: datetime) -> str:
    """What agents do and wait for; calls that belong to no agent are told as calls."""
    if not crew.present and not crew.failed:
        return _calls(picture)
    parts = [f"{crew.answering:,} of {counted(crew.total, 'agent')} {AgentState.ANSWERING.value}"]
    parts += [f"{crew.between:,} {AgentState.BETWEEN.value}"] if crew.between else []
    parts += [
        f"{count:,} {state.value}{_goes_on(crew, state, now)}"
        for state in WAITS
        if (count := crew.waiting.get(state, 0))
    ]
    parts += [f"{crew.failed:,} {AgentState.FAILED.value}"] if crew.failed else []
    parts += [f"{crew.quiet:,} {AgentState.QUIET.value}"] if crew.quiet else []
    return f"{', '.join(parts)}."


def _goes_on(crew: AgentCounts, state: AgentState, now: datetime) -> str:
    """Until when they wait; only parking has an hour that a person plans by."""
    if state is not AgentState.PARKED or state not in crew.until:
        return ""
    first, last = crew.until[state]
    some = ", the first" if last - first > _SAME_HOUR else ""
    return ", about to go on" if first <= now.timestamp() else f"{some} {_until(first, now)}"


def _until(moment: float, now: datetime) -> str:
    """The hour, and how long that is; in whole seconds, as people plan."""
    until = datetime.fromtimestamp(whole_second(moment), now.tzinfo)
    left = duration_in_words(max(timedelta(0), until - now.replace(microsecond=0)))
    return f"until {moment_in_words(until, now)} (in {left})"


def _calls(picture: GatewayStatus) -> str:
    running, waiting = picture.calls_in_flight, picture.calls_waiting
    if not running and not waiting:
        return "Nothing is under way."
    if not waiting:
        return f"{counted(running, 'call')} running, none waiting."
    return f"{counted(running, 'call')} running, {waiting} waiting."


def _how_broken(lane: LaneStatus) -> str:
    """A lane without a cause is left alone because nothing is heard on it."""
    if lane.cause is None:
        return "is silent"
    return "cannot be reached" if lane.cause[0] == _CONNECTION else "is down"


def _lane(lane: LaneStatus, now: datetime) -> str:
    if lane.paused:
        return f"{lane.name} is paused by hand."
    word = "is parked" if lane.state == LaneState.PARKED else _how_broken(lane)
    if lane.until is None:
        return f"{lane.name} {word}; when it comes back is not known."
    until = datetime.fromtimestamp(lane.until, now.tzinfo)
    if until <= now:
        return f"{lane.name} {word}; it is tried again with the next call."
    if lane.state == LaneState.PARKED:
        return f"{lane.name} {word} {_until(lane.until, now)}."
    left = duration_in_words(until - now)
    return f"{lane.name} {word}; it is tried again in {left}."


# Worst first: the line has room for one.
_ORDER = (LaneState.PARKED, LaneState.DOWN, LaneState.RECOVERING, LaneState.THROTTLED)
_WORTH_TELLING = 0.5


def status_line(
    picture: GatewayStatus,
    forecasts: Sequence[Forecast],
    now: datetime,
    crew: AgentCounts = NO_AGENTS,
    needs: Sequence[str] = (),
) -> str:
    """The line."""
    parts = [_standing(picture, now)]
    if needs:
        parts.append(f"{len(needs)} {'needs' if len(needs) == 1 else 'need'} you")
    if crew.held:
        parts.append(f"{crew.answering} of {crew.total} {AgentState.ANSWERING.value}")
    elif picture.calls_waiting:
        parts.append(f"{picture.calls_waiting} waiting")
    fullest = max(forecasts, key=lambda each: each.used, default=None)
    if fullest is not None and fullest.used >= _WORTH_TELLING:
        ends = ""
        if fullest.ends_at is not None and fullest.used < 1.0:
            ends = f", ends {_clock(fullest.ends_at, now)}"
        parts.append(f"{fullest.window} window {fullest.used:.0%}{ends}")
    return "jackline " + " · ".join(parts)


def _standing(picture: GatewayStatus, now: datetime) -> str:
    if own_network(picture.lanes) is not None:
        return f"{LaneState.DOWN.glyph} your network seems down"
    troubled = [lane for lane in picture.lanes if lane.state in _ORDER]
    if not troubled:
        return f"{LaneState.OPEN.glyph} {LaneState.OPEN.value}"
    worst = min(troubled, key=lambda lane: _ORDER.index(LaneState(lane.state)))
    return f"{LaneState(worst.state).glyph} {worst.name} {_lane_words(worst, now)}"


def _lane_words(lane: LaneStatus, now: datetime) -> str:
    if lane.paused:
        return "paused by hand"
    if lane.state == LaneState.PARKED and lane.until is not None:
        return f"{lane.state} until {_clock(lane.until, now)}"
    return lane.state


def _clock(moment: float, now: datetime) -> str:
    at = datetime.fromtimestamp(moment, now.tzinfo)
    return f"{at:%H:%M}" if at.date() == now.date() else f"{at:%a %H:%M}"


def turn_status(turn: QueuePosition, wall_ahead: float, since: float, now: datetime) -> TurnStatus:
    """Where a call stands that waits since `since`; moments of the lanes become dates."""
    cached_until = None if turn.cached_until is None else turn.cached_until + wall_ahead
    out_of_turn = None if turn.out_of_turn_at is None else turn.out_of_turn_at + wall_ahead
    return TurnStatus(
        rank=turn.rank.name.lower(),
        place=turn.place,
        cached_tokens=turn.cached,
        cached_until=cached_until,
        cost_tokens=round(turn.cost),
        out_of_turn_at=out_of_turn,
        why=_why(turn, cached_until, out_of_turn, now.timestamp() - since, now),
    )


def _why(
    turn: QueuePosition,
    cached_until: float | None,
    out_of_turn: float | None,
    waited: float,
    now: datetime,
) -> str:
    later = ""
    if out_of_turn is not None and out_of_turn > now.timestamp():
        later = f"; it may go out of turn at {_moment(out_of_turn, now)}"
    cache = f"its cache of {turn.cached:,} tokens"
    if turn.rank is Rank.LEAVING:
        return "its client will soon wait no longer: it goes before those that can wait"
    if turn.rank is Rank.AGED:
        minutes = timedelta(minutes=max(1, int(waited // 60)))
        return f"it has waited for {duration_in_words(minutes)}: it goes out of turn"
    if turn.rank is Rank.CLOSING and cached_until is not None:
        left = timedelta(seconds=max(1, whole_second(cached_until) - int(now.timestamp())))
        return f"{cache} lapses in {duration_in_words(left)}: it goes before those that can wait"
    if turn.rank is Rank.LAPSED:
        return f"it lost {cache}; warm conversations go first{later}"
    if turn.rank is Rank.NEW:
        return f"it begins a conversation; those that have begun go first{later}"
    if turn.cached and cached_until is not None:
        return f"{cache} holds until {_moment(cached_until, now)}; the most urgent goes first"
    return "the most urgent goes first"


def _moment(at: float, now: datetime) -> str:
    return moment_in_words(datetime.fromtimestamp(whole_second(at), now.tzinfo), now)
