"""Say in one sentence how the gateway stands: who gets on, who waits until when, who needs you.

Laws: (1) what waits comes with its reason and its hour; (2) whether anything needs a person is
always said, also when nothing does; (3) calm when nothing is wrong; (4) agents are counted by the
very words of their rows: "working" is said of none, since between two calls nobody can know it.
Not here: the figures (picture.py, crew.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from jackline.control.counted import counted
from jackline.control.crew import NOBODY, WAITS, Crew
from jackline.control.fleet import Doing
from jackline.control.picture import LaneShown, Picture
from jackline.control.whole_seconds import whole_second
from jackline.failures.sentences import duration_in_words, moment_in_words

_TROUBLED = ("parked", "broken")
_CONNECTION = "network_edge"
_MOST_NEEDS = 3
# Resets that are told within so many seconds of each other are one hour to a person.
_SAME_HOUR = 60.0
_IN_BETWEEN = frozenset(("captive_portal", "dns", "tls", "proxy"))


def verdict(picture: Picture, now: datetime, crew: Crew = NOBODY, needs: Sequence[str] = ()) -> str:
    """The sentence that every face begins with; `needs` is what waits for a person."""
    parts = [_agents(picture, crew, now), needs_you(needs)]
    network = own_network(picture.lanes)
    if network is not None:
        parts.append(network)
    parts += [_lane(lane, now) for lane in picture.lanes if lane.state in _TROUBLED]
    limited = [lane.name for lane in picture.lanes if lane.state == "limited" and lane.waiting]
    if limited:
        parts.append(f"{', '.join(limited)} asked to slow down.")
    delivered = picture.held_and_delivered
    lost = picture.outcomes.get("refused", 0) + picture.outcomes.get("broken", 0)
    parts.append(f"{counted(delivered, 'call')} held and delivered, {lost} passed on as failed.")
    if not picture.journal_ok:
        parts.append(f"The journal is not written: {picture.journal_problem}.")
    if picture.journal_gap:
        parts.append(f"The journal has a gap: {picture.journal_gap}.")
    return " ".join(parts)


def own_network(lanes: Sequence[LaneShown]) -> str | None:
    """What is to be said when the fault is the user's own network; None when it is not.

    A lane that works proves that the network does. Where none does, and nothing but connections
    failed, it is the network: at once if something stands in between (a log-in page, a changed
    certificate) or no name can be looked up, else only if several upstreams are out of reach.
    """
    used = [lane for lane in lanes if lane.state != "open" or lane.in_flight]
    down = [lane for lane in used if lane.state == "broken"]
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


def _agents(picture: Picture, crew: Crew, now: datetime) -> str:
    """What agents do and wait for; calls that belong to no agent are told as calls."""
    if not crew.present and not crew.failed:
        return _calls(picture)
    parts = [f"{crew.answering:,} of {counted(crew.total, 'agent')} {Doing.ANSWERING.value}"]
    parts += [f"{crew.between:,} {Doing.BETWEEN.value}"] if crew.between else []
    parts += [
        f"{count:,} {doing.value}{_goes_on(crew, doing, now)}"
        for doing in WAITS
        if (count := crew.waiting.get(doing, 0))
    ]
    parts += [f"{crew.failed:,} {Doing.FAILED.value}"] if crew.failed else []
    parts += [f"{crew.quiet:,} {Doing.QUIET.value}"] if crew.quiet else []
    return f"{', '.join(parts)}."


def _goes_on(crew: Crew, doing: Doing, now: datetime) -> str:
    """Until when they wait; only parking has an hour that a person plans by."""
    if doing is not Doing.PARKED or doing not in crew.until:
        return ""
    first, last = crew.until[doing]
    some = ", the first" if last - first > _SAME_HOUR else ""
    return ", about to go on" if first <= now.timestamp() else f"{some} {_until(first, now)}"


def _until(moment: float, now: datetime) -> str:
    """The hour, and how long that is; in whole seconds, as people plan."""
    until = datetime.fromtimestamp(whole_second(moment), now.tzinfo)
    left = duration_in_words(max(timedelta(0), until - now.replace(microsecond=0)))
    return f"until {moment_in_words(until, now)} (in {left})"


def _calls(picture: Picture) -> str:
    running, waiting = picture.calls_in_flight, picture.calls_waiting
    if not running and not waiting:
        return "Nothing is under way."
    if not waiting:
        return f"{counted(running, 'call')} running, none waiting."
    return f"{counted(running, 'call')} running, {waiting} waiting."


def _how_broken(lane: LaneShown) -> str:
    """A lane without a cause is left alone because nothing is heard on it."""
    if lane.cause is None:
        return "is silent"
    return "cannot be reached" if lane.cause[0] == _CONNECTION else "is down"


def _lane(lane: LaneShown, now: datetime) -> str:
    if lane.paused:
        return f"{lane.name} is paused by hand."
    word = "is parked" if lane.state == "parked" else _how_broken(lane)
    if lane.until is None:
        return f"{lane.name} {word}; when it comes back is not known."
    until = datetime.fromtimestamp(lane.until, now.tzinfo)
    if until <= now:
        return f"{lane.name} {word}; it is tried again with the next call."
    if lane.state == "parked":
        return f"{lane.name} {word} {_until(lane.until, now)}."
    left = duration_in_words(until - now)
    return f"{lane.name} {word}; it is tried again in {left}."
