"""Run many tool calls side by side, so that each gets its own result, whatever the others do.

Laws: (1) one result per call, bound to its id, in the order of the calls; (2) a failure, timeout,
crash or cancellation of one call ends nothing of another; (3) a call runs only after all that it
needs succeeded, and is skipped with that reason otherwise; (4) a batch that is cancelled ends
everything that it started before it lets go; (5) `began` is awaited before a call runs and `ended`
before anybody learns of its result; what they raise ends the batch, for what cannot be recorded
must not go on.
Not here: what the tools do (shell.py, files.py, …), the words of a report (results.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from jackline.batches.kept_output import KeptOutput
from jackline.batches.leaving import LeavingError, failing_at_most
from jackline.batches.needs import faults_of
from jackline.batches.printing import AGAIN_EMPTY, AT_FIRST_EMPTY, NOT_REPEATED, Printing
from jackline.batches.results import BatchCall, BatchReport, CallResult
from jackline.batches.tool import (
    CallWords,
    JsonObject,
    Tool,
    ToolContext,
    ToolFailedError,
    ToolOutput,
)
from jackline.batches.wording import words_for
from jackline.clock import Clock, SystemClock
from jackline.failures.wording import redact

__all__ = ["BatchCall", "BatchReport", "CallResult", "run_batch"]

USUAL_LIMIT = 16
_PATIENCE_S = 10.0
"""How long a tool may take to end what it started; the shell needs a few seconds at most."""
_LONGEST_ERROR = 2_000

Began = Callable[[BatchCall], Awaitable[None]]
Ended = Callable[[BatchCall, CallResult], Awaitable[None]]
Heard = Callable[[str, str], None]

_let_go: set[asyncio.Task[_Attempt]] = set()
"""Tools that did not end when told to; held, since the loop itself holds tasks only weakly."""


async def run_batch(
    calls: Sequence[BatchCall],
    *,
    context: ToolContext,
    limit: int = USUAL_LIMIT,
    began: Began | None = None,
    ended: Ended | None = None,
    heard: Heard | None = None,
    printing: Printing | None = None,
    clock: Clock | None = None,
) -> BatchReport:
    """The results of all calls, at most `limit` running at once.

    `heard` is told (call id, text) as output comes, on the loop's thread, and must not raise. A
    `printing` that is kept from batch to batch learns which calls usually print.
    """
    batch = _Batch(calls, context, limit, printing or Printing(), clock or SystemClock())
    batch.began, batch.ended, batch.heard = began, ended, heard
    tasks = [asyncio.ensure_future(batch.carry(position)) for position in range(len(calls))]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await _end_all(tasks)
    faults = [task.exception() for task in tasks if not task.cancelled()]
    if fault := next(filter(None, faults), None):
        raise fault
    return BatchReport(tuple(task.result() for task in tasks))


async def _end_all(tasks: Sequence[asyncio.Future[CallResult]]) -> None:
    for task in tasks:
        task.cancel()
    cancelled = False
    while running := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError:
            # A second cancellation must not leave processes behind; it is passed on below.
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One run of a tool; `error` is None when it did what it was asked to."""

    output: ToolOutput
    error: str | None = None
    ended_by: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it succeeded without a word."""
        return self.error is None and not self.output.text.strip() and not self.output.blocks


class _Batch:
    """One batch while it runs."""

    def __init__(
        self,
        calls: Sequence[BatchCall],
        context: ToolContext,
        limit: int,
        printing: Printing,
        clock: Clock,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.began: Began | None = None
        self.ended: Ended | None = None
        self.heard: Heard | None = None
        self._calls = calls
        self._context = context
        self._printing = printing
        self._clock = clock
        self._faults = faults_of(calls)
        self._slots = asyncio.Semaphore(max(1, limit))
        self._results: dict[str, asyncio.Future[CallResult]] = {
            call.id: loop.create_future() for call in calls
        }

    async def carry(self, position: int) -> CallResult:
        """The result of one call, after all that it needs."""
        call = self._calls[position]
        mine = self._results[call.id]
        try:
            result = await self._result(call, self._faults.get(position))
        except BaseException:
            # Whoever waits for this call must not wait for ever; the batch is ending.
            mine.cancel()
            raise
        if not mine.done():  # two calls of one id share it; both were refused
            mine.set_result(result)
        return result

    async def _result(self, call: BatchCall, fault: str | None) -> CallResult:
        words = words_for(call)
        if fault is not None:
            refused = f"refused: {fault}"
            result = CallResult(call.id, words.what, ok=False, error=refused, name=words.name)
            return await self._recorded(call, replace(result, ended_by="refused"))
        if reason := await self._unmet(call):
            skipped = CallResult(call.id, words.what, ok=False, error=reason, name=words.name)
            return await self._recorded(call, replace(skipped, skipped_because=reason))
        async with self._slots:
            if self.began is not None:
                await self.began(call)
            return await self._recorded(call, await self._run(call, words))

    async def _recorded(self, call: BatchCall, result: CallResult) -> CallResult:
        if self.ended is not None:
            await self.ended(call, result)
        return result

    async def _unmet(self, call: BatchCall) -> str | None:
        """Why the call cannot run, once all that it needs has ended; None when it can."""
        for need in call.needs:
            # Waited for from outside: cancelling one waiter must not cancel what all wait for.
            await asyncio.wait([self._results[need]])
            needed = self._results[need].result()
            if needed.skipped_because is not None:
                return f"skipped: it needs {need!r}, which was skipped itself"
            if not needed.ok:
                why = f" ({needed.ended_by})" if needed.ended_by else ""
                return f"skipped: it needs {need!r}, which failed{why}"
        return None

    async def _run(self, call: BatchCall, words: CallWords) -> CallResult:
        started = self._clock.monotonic()
        attempt = await self._attempt(call)
        noticed, again = "", False
        if attempt.is_empty and self._is_strange(call, words):
            noticed = NOT_REPEATED
            if _may_run_twice(call):
                again, attempt = True, await self._attempt(call)
                noticed = AGAIN_EMPTY if attempt.is_empty else AT_FIRST_EMPTY
        if attempt.error is None and not attempt.is_empty:
            self._printing.note(call.tool.name, call.arguments)
        return CallResult(
            id=call.id,
            what=words.what,
            ok=attempt.error is None,
            text=attempt.output.text,
            blocks=attempt.output.blocks,
            error=attempt.error,
            exit_code=attempt.output.exit_code,
            empty_noticed=noticed,
            ran_again=again,
            seconds=self._clock.monotonic() - started,
            name=words.name,
            value=attempt.output.value,
            ended_by=attempt.ended_by,
        )

    def _is_strange(self, call: BatchCall, words: CallWords) -> bool:
        if words.usually_prints:
            return True
        return self._printing.has_printed(call.tool.name, call.arguments)

    async def _attempt(self, call: BatchCall) -> _Attempt:
        """One run of the tool, within the call's time."""
        kept = KeptOutput()
        listening = True

        def hear(text: str) -> None:
            if listening:
                kept.add(text)
                self._context.heard(text)
                if self.heard is not None:
                    self.heard(call.id, text)

        context = replace(self._context, call_id=call.id, heard=hear)
        running = asyncio.ensure_future(_guarded(call.tool, call.arguments, context))
        try:
            in_time = await self._ended_within(running, call.timeout)
        finally:
            if not running.done():
                await self._end(running)
            listening = False
        so_far = ToolOutput(kept.text)
        if not in_time:
            still = "" if running.done() else "; it did not let itself be ended and may still run"
            return _Attempt(so_far, f"timed out after {call.timeout:g} s{still}", "timed out")
        if running.cancelled():
            return _Attempt(so_far, "was cancelled from within", "cancelled")
        attempt = running.result()
        if attempt.error is not None and not attempt.output.text:
            return replace(attempt, output=replace(attempt.output, text=kept.text))
        return attempt

    async def _ended_within(self, running: asyncio.Task[_Attempt], seconds: float | None) -> bool:
        if seconds is None:
            await asyncio.wait([running])
            return True
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait([running, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        return running.done()

    async def _end(self, running: asyncio.Task[_Attempt]) -> None:
        """Cancel a tool and give it time to end what it started; one that will not is let go."""
        running.cancel()
        patience = asyncio.ensure_future(self._clock.sleep(_PATIENCE_S))
        cancelled = False
        while not (running.done() or patience.done()):
            try:
                await asyncio.wait([running, patience], return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                cancelled = True
        patience.cancel()
        if not running.done():
            _let_go.add(running)
            running.add_done_callback(_let_go.discard)
        if cancelled:
            raise asyncio.CancelledError


async def _guarded(tool: Tool, arguments: JsonObject, context: ToolContext) -> _Attempt:
    """What came of running the tool; every trouble of its own becomes a result."""
    try:
        with failing_at_most():
            output = await tool.run(arguments, context)
    except ToolFailedError as failed:
        code = failed.exit_code
        by = failed.ended_by or ("" if code is None else f"exit {code}")
        output = ToolOutput(failed.output, exit_code=code)
        return _Attempt(output, redact(failed.says)[:_LONGEST_ERROR], by)
    except LeavingError as left:
        return _Attempt(ToolOutput(), redact(str(left)), "crashed")
    except Exception as error:  # noqa: BLE001 -- the border of one tool call: its siblings go on
        return _Attempt(ToolOutput(), f"crashed: {_told(error)}", type(error).__name__)
    return _Attempt(output)


def _told(error: Exception) -> str:
    """The exception's type and words, without what looks like a secret."""
    try:
        said = redact(" ".join(str(error).split()))[:_LONGEST_ERROR]
    except Exception:  # noqa: BLE001 -- a broken __str__ must not hide the failure it belongs to
        said = ""
    return f"{type(error).__name__}: {said}".rstrip(": ")


def _may_run_twice(call: BatchCall) -> bool:
    try:
        return call.tool.read_only(call.arguments)
    except Exception:  # noqa: BLE001 -- a tool that cannot tell has promised nothing
        return False
