"""Count the agents of now by what they do, and name what waits for a person.

Laws: (1) pure: facts and the time come in; (2) an agent is counted once, and those that have ended
are not counted; (3) nothing is guessed: who was heard of minutes ago is "quiet", not at work.
Not here: the sentence (verdict.py), each agent by itself (fleet.py, fleet_reading.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jackline.control.fleet import Doing, Fleet, Key, Live, resting

# Who is between calls for longer may run a long tool, or be gone: nobody can tell from outside.
QUIET_AFTER = 120.0
WAITS = (Doing.PARKED, Doing.DOWN, Doing.THROTTLED, Doing.QUEUED)
# A refused key is a person's matter until a call gets through, and no news after so long.
_REFUSED_LATELY = 900.0


@dataclass(frozen=True, slots=True)
class Crew:
    """The agents of one moment: how many work, wait for what, have failed, or are quiet."""

    working: int = 0
    waiting: Mapping[Doing, int] = field(default_factory=dict)
    until: Mapping[Doing, tuple[float, float]] = field(default_factory=dict)
    """When the first and the last of those that wait for this go on, as far as that is known."""
    failed: int = 0
    quiet: int = 0

    @property
    def at_work(self) -> int:
        """Those that work or wait to."""
        return self.working + sum(self.waiting.values())

    @property
    def total(self) -> int:
        """All that have not ended."""
        return self.at_work + self.failed + self.quiet


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
    working, failed, quiet = waiting.pop(Doing.ANSWERING, 0), 0, 0
    for key in fleet.known():
        member = fleet.member(key)
        if key in calls or member is None:
            continue
        doing = ended.get(member.agent) or resting(member, now)
        if doing is Doing.BETWEEN and now - member.last_end < QUIET_AFTER:
            working += 1
        elif doing is Doing.BETWEEN:
            quiet += 1
        elif doing is Doing.FAILED and now - member.last_end < _REFUSED_LATELY:
            failed += 1
        elif doing in WAITS:
            waits(doing, (rests or {}).get(member.agent, ("", None))[1])
    return Crew(working, waiting, until, failed, quiet)


def needs_of(
    runs: Mapping[str, object],
    lanes: Iterable[tuple[str, str, str | None]],
    refused: Mapping[str, float],
    now: float,
) -> tuple[str, ...]:
    """What waits for a person, in a few words each.

    `runs` as the store of runs tells them; `lanes` are name, state and what closed it; `refused`
    is when each upstream last refused a key and has answered no call since.
    """
    told = [run for run in runs.values() if isinstance(run, Mapping)]
    found = [words for run in told if (words := _run_needs(run))]
    for name, state, cause in lanes:
        if state == "parked" and cause == "billing":
            place = name.partition("/")[0]
            found.append(f"{place} takes no more calls: its credit is used up or its bill unpaid")
    found += [
        f"{place} refuses the key or login: sign in again"
        for place, at in refused.items()
        if now - at < _REFUSED_LATELY
    ]
    return tuple(dict.fromkeys(found))


def _run_needs(run: Mapping[str, object]) -> str:
    name = f"{run.get('flow')} ({run.get('run')})"
    if run.get("state") == "cut off":
        return f"{name} was cut off: jackline resume {run.get('run')}"
    if run.get("state") == "parked" and run.get("wake_at") is None:
        return f"{name} is parked until you say so: jackline resume {run.get('run')}"
    return ""
