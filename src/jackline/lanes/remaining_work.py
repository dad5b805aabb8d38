"""Estimate how long the work behind a call will still take, from other work that was observed.

Rules: (1) pure: the same events give the same answers, and time is an argument; (2) the only input
is which session and which agent a call belongs to; (3) an agent whose end is unknown does not count
as ended; (4) estimates change only when twice as much is known: waiting calls have the estimate of
their submission, and would starve behind newer ones if it changed all the time; (5) sessions
without a call for a day are dropped, and the least recent ones where there are very many.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

# An agent silent for so long, and for so many usual pauses, has ended.
_SILENT_FOR = 120.0
_SILENT_PAUSES = 10.0
_FORGOTTEN_AFTER = 86_400.0
# Who called last is known to within so many seconds: they are put in order no more often.
_SEEN_WITHIN = 60.0
_MOST_SESSIONS = 10_000
_MOST_AGENTS = 20_000
_MOST_OF_A_SESSION = 2_000
# Beyond the longest chain ever seen, each call is as likely as not to be the last.
_UNKNOWN = 0.5
_LONGEST_CHAIN = 2_000
# Sessions are taken to have so many stages until one has more; only differences matter.
_STAGES = 4
# What is believed before anything was seen (the work that bench/lanes.py plays), and as how many
# observations it counts.
_PRIOR_CHAINS = 40
_PRIOR_SERVICE = 16.0
_PRIOR_PAUSE = 4.0
_PRIOR_WEIGHT = 100
_PRIOR_STAGE = 35.0
_PRIOR_STAGES = 10


@dataclass(slots=True)
class _Agent:
    """A chain of calls, one after the other."""

    stage: int
    calls: int = 0
    asking: bool = False
    # It waits to be looked at for its silence, once.
    watched: bool = False
    ended: bool = False
    quiet_since: float = 0.0


@dataclass(slots=True)
class _Session:
    """Agents that work on the same thing; `asking` of them have a call waiting or under way."""

    agents: dict[str, _Agent] = field(default_factory=dict)
    stage: int = 0
    asking: int = 0
    seen_at: float = 0.0


class _Mean:
    """A mean that begins with a belief."""

    __slots__ = ("_weight", "value")

    def __init__(self, belief: float, weight: int) -> None:
        self.value = belief
        self._weight = weight

    def add(self, seen: float) -> None:
        self._weight += 1
        self.value += (seen - self.value) / self._weight


class ChainLengths:
    """How many calls agents make: of those that had made k, how many went on and how many ended."""

    def __init__(self) -> None:
        # As if chains of one call, of two, of three and so on had been seen before.
        self._went_on = list(range(_PRIOR_CHAINS, -1, -1))
        self._ended = [0] + [1] * _PRIOR_CHAINS
        self.all_ended = _PRIOR_CHAINS

    def went_on(self, calls: int) -> None:
        """An agent that had made so many calls makes another."""
        if calls < len(self._went_on):
            self._went_on[calls] += 1
        else:
            self._count(self._went_on, calls, 1)

    def ended(self, calls: int) -> None:
        """An agent has ended after so many calls."""
        self._count(self._ended, calls, 1)
        self.all_ended += 1

    def went_on_after_all(self, calls: int) -> None:
        """An agent that was taken to have ended has not."""
        self._count(self._ended, calls, -1)
        self.all_ended -= 1

    def expected_after(self) -> list[float]:
        """How many more calls agents make that have made 0, 1, 2 and so on; the last is for all."""
        # From the last call backwards: go on with the seen share, and then expect the next one's.
        expected = [0.0] * len(self._went_on) + [(1 - _UNKNOWN) / _UNKNOWN]
        for calls in reversed(range(len(self._went_on))):
            known = self._went_on[calls] + self._ended[calls]
            going_on = self._went_on[calls] / known if known else 1 - _UNKNOWN
            expected[calls] = going_on * (1 + expected[calls + 1])
        return expected

    def _count(self, counts: list[int], calls: int, change: int) -> None:
        calls = min(calls, _LONGEST_CHAIN)
        missing = calls + 1 - len(self._went_on)
        if missing > 0:
            self._went_on += [0] * missing
            self._ended += [0] * missing
        counts[calls] += change


class RemainingWork:
    """The expected remaining path of every agent; see the module's laws.

    What is believed now: after k calls an agent makes `calls_after[k]` more, a call and the pause
    after it take `cycle` seconds, and the longest chain of a stage has `calls_of_a_stage`.
    A stage is work that starts when all that was under way in a session is done, as behind a
    barrier. Its number can be passed; else it is observed: a new agent while nobody calls begins
    a stage.
    """

    def __init__(self) -> None:
        self.chains = ChainLengths()
        self._sessions: dict[str, _Session] = {}
        self._quiet: deque[tuple[float, _Agent]] = deque()
        self._service = _Mean(_PRIOR_SERVICE, _PRIOR_WEIGHT)
        self._pause = _Mean(_PRIOR_PAUSE, _PRIOR_WEIGHT)
        self._longest = _Mean(_PRIOR_STAGE, _PRIOR_STAGES)
        self._most_stages = _STAGES
        self._believe()

    def asks(self, now: float, session: str, agent: str, stage: int | None = None) -> float:
        """An agent wants a call: the seconds its session will still need once it is answered."""
        if self._quiet and self._quiet[0][0] < now - _SILENT_FOR:
            self._notice_ends(now)
        group = self._sessions.get(session)
        if group is None or now - group.seen_at > _SEEN_WITHIN:
            group = self._session(now, session)
        found = group.agents.get(agent)
        if found is None:
            found = group.agents[agent] = self._newcomer(group, stage)
            if len(group.agents) > _MOST_OF_A_SESSION:
                # Those that were met first go: of many thousands most have ended.
                quiet = [name for name, each in group.agents.items() if not each.asking]
                for name in quiet[: _MOST_OF_A_SESSION // 4]:
                    del group.agents[name]
        elif not found.asking:
            if found.ended:
                found.ended = False
                self.chains.went_on_after_all(found.calls)
            elif found.calls:
                self._pause.add(max(0.0, now - found.quiet_since))
            self.chains.went_on(found.calls)
        if not found.asking:
            found.asking = True
            group.asking += 1
        if self.chains.all_ended >= self._stands_until:
            self._believe()
        after, made = self.calls_after, found.calls + 1
        calls = after[made] if made < len(after) else after[-1]
        stages = max(0, self._most_stages - 1 - found.stage)
        return self.cycle * (calls + stages * self.calls_of_a_stage)

    def answered(self, now: float, session: str, agent: str, service: float) -> None:
        """The call is answered, after so many seconds on the wire."""
        found = self._fell_quiet(now, session, agent)
        if found is not None:
            found.calls += 1
            self._service.add(service)
            if not found.watched:
                found.watched = True
                self._quiet.append((now, found))
                if len(self._quiet) > _MOST_AGENTS:
                    # Of so many, the one that is quiet for longest is taken to have ended.
                    _, quietest = self._quiet.popleft()
                    quietest.watched = False
                    if not quietest.asking:
                        self._ends(quietest)

    def withdrawn(self, now: float, session: str, agent: str) -> None:
        """The call ended without an answer; the agent may ask again."""
        self._fell_quiet(now, session, agent)

    def _believe(self) -> None:
        """Take what was learned for what is expected, until twice as much is known."""
        self.calls_after = self.chains.expected_after()
        self.cycle = self._service.value + self._pause.value
        self.calls_of_a_stage = self._longest.value
        self._stands_until = 2 * self.chains.all_ended

    def _session(self, now: float, name: str) -> _Session:
        group = self._sessions.pop(name, None) or _Session()
        # The one that called last comes last, so that the forgotten ones are found first.
        self._sessions[name] = group
        group.seen_at = now
        oldest = next(iter(self._sessions))
        forgotten = now - self._sessions[oldest].seen_at > _FORGOTTEN_AFTER
        if forgotten or len(self._sessions) > _MOST_SESSIONS:
            del self._sessions[oldest]
        return group

    def _newcomer(self, group: _Session, number: int | None) -> _Agent:
        stage = number
        if stage is None:
            stage = group.stage if group.asking or not group.agents else group.stage + 1
        if stage > group.stage:
            # All who are not asking have ended: the next stage has waited for them.
            longest = 0
            for each in group.agents.values():
                if each.stage == group.stage:
                    longest = max(longest, each.calls)
                if not each.asking:
                    self._ends(each)
            if longest:
                self._longest.add(longest)
            group.stage = stage
            self._most_stages = max(self._most_stages, stage + 1)
        return _Agent(stage)

    def _ends(self, agent: _Agent) -> None:
        if not agent.ended:
            agent.ended = True
            self.chains.ended(agent.calls)

    def _notice_ends(self, now: float) -> None:
        long_ago = now - max(_SILENT_FOR, _SILENT_PAUSES * self._pause.value)
        while self._quiet and self._quiet[0][0] < long_ago:
            _, agent = self._quiet.popleft()
            if not agent.asking and agent.quiet_since >= long_ago:
                # It has been busy since: looked at again when it has been quiet for long enough.
                self._quiet.append((agent.quiet_since, agent))
                continue
            agent.watched = False
            if not agent.asking:
                self._ends(agent)

    def _fell_quiet(self, now: float, session: str, agent: str) -> _Agent | None:
        group = self._sessions.get(session)
        found = None if group is None else group.agents.get(agent)
        if group is None or found is None or not found.asking:
            return None
        found.asking = False
        found.quiet_since = now
        group.asking -= 1
        return found
