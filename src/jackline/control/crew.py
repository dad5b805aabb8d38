"""Count the agents of now by what they do, and name what waits for a person.

Laws: (1) pure: facts and the time come in; (2) an agent is counted once, under the word of its own
row on every face, and those that have ended are not counted; (3) nothing is guessed: whether an
agent works that has no call under way is nobody's to say from outside.
Not here: the sentence (verdict.py), each agent by itself (fleet.py, fleet_reading.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jackline.control.counted import counted
from jackline.control.fleet import Doing, Fleet, Key, Live, resting
from jackline.control.picture import LaneShown

_ALONE = (Doing.BETWEEN, Doing.QUIET)
WAITS = (Doing.PARKED, Doing.DOWN, Doing.THROTTLED, Doing.QUEUED)
# A refused key is a person's matter until a call gets through, and no news after so long.
_REFUSED_LATELY = 900.0
_ENDED = ("finished", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Crew:
    """The agents of one moment: how many are answered, wait for what, failed, or are alone."""

    answering: int = 0
    waiting: Mapping[Doing, int] = field(default_factory=dict)
    until: Mapping[Doing, tuple[float, float]] = field(default_factory=dict)
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


NOBODY = Crew()


def crew_of(
    live: Iterable[Live],
    fleet: Fleet,
    ended: Mapping[str, Doing],
    now: float,
    rests: Mapping[str, tuple[str, float | None]] | None = None,
) -> Crew:
    """The agents of now.

    `ended` is what runs know of agents that have no call under way, by task; `rests` is why those
    of them wait, and until when.
    """
    calls: dict[Key, Live] = {}
    for call in live:
        key = (call.session, call.agent)
        known = calls.get(key)
        # Of several calls that one which waits, since that is what holds the agent up.
        if key != ("", "") and (known is None or known.doing is Doing.ANSWERING):
            calls[key] = call
    waiting: dict[Doing, int] = {}
    until: dict[Doing, tuple[float, float]] = {}

    def waits(doing: Doing, its_end: float | None) -> None:
        waiting[doing] = waiting.get(doing, 0) + 1
        if its_end is not None:
            first, last = until.get(doing, (its_end, its_end))
            until[doing] = (min(first, its_end), max(last, its_end))

    for call in calls.values():
        waits(call.doing, call.until)
    answering, failed, alone = waiting.pop(Doing.ANSWERING, 0), 0, dict.fromkeys(_ALONE, 0)
    for key in fleet.known():
        member = fleet.member(key)
        if key in calls or member is None:
            continue
        doing = ended.get(member.agent) or resting(member, now)
        if doing in alone:
            alone[doing] += 1
        elif doing is Doing.FAILED and now - member.last_end < _REFUSED_LATELY:
            failed += 1
        elif doing in WAITS:
            waits(doing, (rests or {}).get(member.agent, ("", None))[1])
    return Crew(answering, waiting, until, failed, alone[Doing.BETWEEN], alone[Doing.QUIET])


def needs_of(
    runs: Mapping[str, object],
    lanes: Iterable[LaneShown],
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
        if lane.state == "parked" and lane.cause is not None and lane.cause[0] == "billing":
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
        return "" if run.get("state") in _ENDED else f"{name} is not run, {accept}"
    if run.get("state") == "cut off":
        return f"{name} was cut off: jackline resume {run.get('run')}"
    if run.get("state") == "parked" and run.get("wake_at") is None:
        step, why = f"jackline resume {run.get('run')}", str(run.get("why") or "")
        return (
            f"{name} is parked: {why}"
            if step in why
            else f"{name} is parked until you say so: {step}"
        )
    return ""
