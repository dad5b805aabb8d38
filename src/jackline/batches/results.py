"""Say what came of a batch: one result per call, and a count that names what failed.

Laws: (1) results stand in the order of the calls; (2) a call that did not run says why it did not;
(3) every text for a model begins with what it answers.
Not here: running the calls (batch.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jackline.batches.tool import JsonObject, Tool

_NAMED = 5
"""So many failures are named in a summary; the results themselves tell all."""


@dataclass(frozen=True, slots=True)
class BatchCall:
    """One call of a batch.

    `needs` are ids of calls that must have succeeded first; `timeout` is in seconds; `what` is the
    caller's own word for it, where the tool's would not do.
    """

    id: str
    tool: Tool
    arguments: JsonObject
    needs: tuple[str, ...] = ()
    timeout: float | None = None
    what: str = ""


@dataclass(frozen=True, slots=True)
class CallResult:
    """What came of one call; `text` holds what it printed, also when it failed half-way."""

    id: str
    what: str
    ok: bool
    text: str = ""
    blocks: tuple[JsonObject, ...] = ()
    error: str | None = None
    """Why it is not ok, in a sentence; None when it is."""
    exit_code: int | None = None
    skipped_because: str | None = None
    """Set when the call never ran; `error` holds the same words."""
    empty_noticed: str = ""
    ran_again: bool = False
    seconds: float = 0.0
    name: str = ""
    """What a count of failures calls it: `grep`, where `what` is the whole command."""
    value: object = None
    """What a Python function returned; None for other tools."""
    ended_by: str = ""
    """For a count of failures: `exit 3`, `timed out`, `crashed`, `cancelled`, `refused`; or ""."""

    @property
    def for_model(self) -> str:
        """The result as a model should read it: what it answers, how it went, what it printed."""
        return "\n".join(part for part in (self._headline, self.text.rstrip("\n")) if part)

    @property
    def _headline(self) -> str:
        notes = [self.error or "ok"]
        if self.ok and self.empty_noticed:
            notes.append(self.empty_noticed)
        elif self.ok and not self.text.strip() and not self.blocks:
            notes.append("it printed nothing")
        return f"[{self.what}] {'; '.join(notes)}"


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The results of a batch, in the order of its calls."""

    results: tuple[CallResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every call did what it was asked to."""
        return all(result.ok for result in self.results)

    @property
    def failed(self) -> tuple[CallResult, ...]:
        """The calls that ran and failed, or were refused; not those that were skipped for them."""
        return tuple(r for r in self.results if not r.ok and r.skipped_because is None)

    @property
    def skipped(self) -> tuple[CallResult, ...]:
        """The calls that never ran because something they need did not succeed."""
        return tuple(result for result in self.results if result.skipped_because is not None)

    @property
    def summary(self) -> str:
        """All counts: "13 of 14 ok, 1 failed: grep (exit 3)"."""
        good = sum(result.ok for result in self.results)
        return ", ".join((f"{good} of {len(self.results)} ok", *self._troubles()))

    @property
    def headline(self) -> str:
        """The trouble alone: "1 of 14 failed: grep (exit 3)"; "all 14 ok" without any."""
        if self.ok:
            return f"all {len(self.results)} ok"
        first, *rest = self._troubles()
        count, told, names = first.partition(" ")
        return ", ".join((f"{count} of {len(self.results)}{told}{names}", *rest))

    def _troubles(self) -> list[str]:
        troubles = []
        if self.failed:
            troubles.append(f"{len(self.failed)} failed: {_names(self.failed)}")
        if self.skipped:
            troubles.append(f"{len(self.skipped)} skipped: {_names(self.skipped)}")
        return troubles

    def __getitem__(self, call_id: str) -> CallResult:
        for result in self.results:
            if result.id == call_id:
                return result
        raise KeyError(call_id)

    def __iter__(self) -> Iterator[CallResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)


def _names(results: tuple[CallResult, ...]) -> str:
    named = [
        f"{result.name or result.id} ({result.ended_by})"
        if result.ended_by
        else result.name or result.id
        for result in results[:_NAMED]
    ]
    more = len(results) - _NAMED
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")
