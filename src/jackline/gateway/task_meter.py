"""Count what the calls of each agent of a flow took: time held, answers, tokens by model.

Rules: (1) an agent names itself in `x-jackline-task` with a proof that this user's installation has
named it so; any other name is as if there were none; (2) it counts as held while all of its calls
wait, to about a second; (3) a call is counted once, at its end, with all that its attempts used,
delivered or not; (4) agents, and models of one agent, are limited in number; (5) a restart forgets
all of it, and so may a very old meter be: each has an epoch, by which readers see that it began at
zero.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

import msgspec

from jackline.dialects import TokenUsage
from jackline.dialects.sent_prefixes import SentPrefixes

MOST_TASKS = 4096
MOST_MODELS = 16
_OTHER_MODELS = "other"
_NOTHING_USED = TokenUsage()
_THIS_PROCESS = secrets.token_hex(6)
_numbers = count(1)


def _new_epoch() -> str:
    return f"{_THIS_PROCESS}-{next(_numbers)}"


@dataclass(slots=True)
class TaskMeter:
    """What the calls of one agent took so far."""

    held: float = 0.0
    """Seconds."""
    answers: int = 0
    usage: dict[str, TokenUsage] = field(default_factory=dict)
    """By the model that the upstream was asked for."""
    unsent: dict[str, int] = field(default_factory=dict)
    """By the same: of what was read from caches, what no call had sent through this gateway."""
    epoch: str = field(default_factory=_new_epoch)
    """No other meter has the same."""

    def to_json(self) -> dict[str, object]:
        """The same as plain JSON: counts in the order of `TokenUsage`."""
        usage = {model: list(msgspec.structs.astuple(used)) for model, used in self.usage.items()}
        held = round(self.held, 3)
        return {
            "epoch": self.epoch,
            "held": held,
            "answers": self.answers,
            "usage": usage,
            "unsent": self.unsent,
        }


class TaskMeters:
    """One meter for each agent that names itself; the longest unused ones are forgotten."""

    def __init__(self) -> None:
        self._meters: OrderedDict[str, TaskMeter] = OrderedDict()
        self._looked_at: float | None = None
        self.sent = SentPrefixes()

    @property
    def by_task(self) -> Mapping[str, TaskMeter]:
        """All meters, by task id."""
        return self._meters

    def to_json(self) -> dict[str, object]:
        """All meters as plain JSON."""
        return {task: meter.to_json() for task, meter in self._meters.items()}

    def look(self, calls: Iterable[tuple[str, bool]], now: float) -> None:
        """Count the time since the last look; `calls` are their tasks, and whether each waits."""
        passed = 0.0 if self._looked_at is None else max(0.0, now - self._looked_at)
        self._looked_at = now
        held: set[str] = set()
        works: set[str] = set()
        for task, waits in calls:
            (held if waits else works).add(task)
        for task in held - works:
            self._of(task).held += passed

    def count_call(
        self, task: str, model: str, used: TokenUsage, *, answered: bool, unsent: int = 0
    ) -> None:
        """A call of this agent is over; `unsent` of its cache reads nobody had sent before."""
        if not answered and used == _NOTHING_USED:
            return
        meter = self._of(task)
        meter.answers += answered
        if model not in meter.usage and len(meter.usage) >= MOST_MODELS:
            model = _OTHER_MODELS
        meter.usage[model] = meter.usage.get(model, _NOTHING_USED) + used
        if unsent:
            meter.unsent[model] = meter.unsent.get(model, 0) + unsent

    def _of(self, task: str) -> TaskMeter:
        meter = self._meters.get(task)
        if meter is None:
            meter = self._meters[task] = TaskMeter()
            while len(self._meters) > MOST_TASKS:
                self._meters.popitem(last=False)
        self._meters.move_to_end(task)
        return meter
