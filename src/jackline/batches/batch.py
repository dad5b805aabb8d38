"""Run many tool calls side by side, each with its own result, whatever the others do.

Rules: (1) one result per call, with its id, in the order of the calls; (2) a failure, timeout,
crash or cancellation of one call ends no other; (3) calls whose needs cannot be met are found
before anything runs; a call runs only after all that it needs succeeded, and is skipped with that
reason otherwise; (4) a cancelled batch ends everything that it started; (5) `began` is awaited
before a call runs and `ended` before anybody learns of its result; what they raise ends the batch,
because what cannot be recorded must not continue; (6) a call that printed earlier in this session
and now prints nothing is noticed; arguments are remembered as digests, up to a bounded number.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256

from jackline.batches.threads import LeavingError, contain_exits
from jackline.batches.tool import (
    BatchCall,
    BatchReport,
    CallLabel,
    CallResult,
    ClippedOutput,
    ToolContext,
    ToolFailedError,
    ToolOutput,
)
from jackline.clock import Clock, SystemClock
from jackline.failures.wording import redact


def _faults_of(calls: Sequence[BatchCall]) -> dict[int, str]:
    """By position in `calls`: why that call cannot run."""
    ids = Counter(call.id for call in calls)
    circular = _in_cycles({call.id: call.needs for call in calls})
    faults = {}
    for position, call in enumerate(calls):
        if ids[call.id] > 1:
            faults[position] = (
                f"the id {call.id!r} is given to {ids[call.id]} calls; give each its own"
            )
        elif unknown := [need for need in call.needs if need not in ids]:
            known = ", ".join(repr(name) for name in list(ids)[:10])
            named = ", ".join(repr(name) for name in unknown)
            faults[position] = (
                f"it needs {named}, which is no call of this batch; the calls are {known}"
            )
        elif call.id in call.needs:
            faults[position] = "it needs itself; leave its own id out of `needs`"
        elif call.id in circular:
            faults[position] = (
                "it waits, through its needs, for itself; remove one of the needs on that circle"
            )
    return faults


def _in_cycles(needs: Mapping[str, Sequence[str]]) -> set[str]:
    """The ids that reach themselves; found without recursion, since a chain may be long."""
    known = {call: {need for need in wanted if need in needs} for call, wanted in needs.items()}
    sorter = TopologicalSorter(known)
    with suppress(CycleError):
        sorter.prepare()
    left = set(known)
    while free := sorter.get_ready():
        left.difference_update(free)
        sorter.done(*free)
    circular = set()
    for start in left:
        seen, ahead = set[str](), [start]
        while ahead and start not in seen:
            new = (known[ahead.pop()] & left) - seen
            seen |= new
            ahead.extend(new)
        if start in seen:
            circular.add(start)
    return circular


AGAIN_EMPTY = "came back empty twice, where such a call usually prints something"
AT_FIRST_EMPTY = "was empty at first; this is the second run"
NOT_REPEATED = (
    "came back empty, where such a call usually prints something; "
    "not run again, since it may change things"
)

_MOST_DIGESTS = 10_000


class OutputHistory:
    """What has printed before in this session."""

    def __init__(self) -> None:
        self._printed: dict[bytes, None] = {}

    def note(self, call: BatchCall) -> None:
        """This call gave some output."""
        self._printed[self._digest(call)] = None
        if len(self._printed) > _MOST_DIGESTS:
            del self._printed[next(iter(self._printed))]

    def has_printed(self, call: BatchCall) -> bool:
        """Whether the very same call gave some output before."""
        return self._digest(call) in self._printed

    def _digest(self, call: BatchCall) -> bytes:
        text = json.dumps([call.tool.name, call.arguments], sort_keys=True, default=repr)
        return sha256(text.encode("utf-8", "surrogatepass")).digest()


CALLS_AT_ONCE = 16
_PATIENCE_S = 10.0
"""How long a tool may take to end what it started; the shell needs a few seconds at most."""
_LONGEST_ERROR = 2_000

Began = Callable[[BatchCall], Awaitable[None]]
Ended = Callable[[BatchCall, CallResult], Awaitable[None]]
OnOutput = Callable[[str, str], None]

_let_go: set[asyncio.Task[_Attempt]] = set()
"""Tools that did not end when cancelled; held, since the loop itself holds tasks only weakly."""


async def run_batch(
    calls: Sequence[BatchCall],
    *,
    context: ToolContext,
    limit: int = CALLS_AT_ONCE,
    began: Began | None = None,
    ended: Ended | None = None,
    on_output: OnOutput | None = None,
    printing: OutputHistory | None = None,
    clock: Clock | None = None,
) -> BatchReport:
    """The results of all calls, at most `limit` running at once.

    `on_output` is called with (call id, text) as output comes, on the loop's thread, and must not
    raise. A `printing` that is passed from batch to batch learns which calls usually print.
    """
    batch = _Batch(calls, context, limit, printing or OutputHistory(), clock or SystemClock())
    batch.began, batch.ended, batch.on_output = began, ended, on_output
    tasks = [asyncio.ensure_future(batch.run_call(position)) for position in range(len(calls))]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
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
    faults = [task.exception() for task in tasks if not task.cancelled()]
    if fault := next(filter(None, faults), None):
        raise fault
    return BatchReport(tuple(task.result() for task in tasks))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One run of a tool; `error` is None when it did what it was asked to."""

    output: ToolOutput
    error: str | None = None
    ended_by: str = ""

    @property
    def is_empty(self) -> bool:
        return self.error is None and not self.output.text.strip() and not self.output.blocks


class _Batch:
    def __init__(
        self,
        calls: Sequence[BatchCall],
        context: ToolContext,
        limit: int,
        printing: OutputHistory,
        clock: Clock,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.began: Began | None = None
        self.ended: Ended | None = None
        self.on_output: OnOutput | None = None
        self._calls = calls
        self._context = context
        self._printing = printing
        self._clock = clock
        self._faults = _faults_of(calls)
        self._slots = asyncio.Semaphore(max(1, limit))
        self._results: dict[str, asyncio.Future[CallResult]] = {
            call.id: loop.create_future() for call in calls
        }

    async def run_call(self, position: int) -> CallResult:
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
        label = call.label
        result = CallResult(call.id, label.what, ok=False, name=label.name)
        if fault is not None:
            result = replace(result, error=f"refused: {fault}", ended_by="refused")
        elif reason := await self._unmet(call):
            result = replace(result, error=reason, skipped_because=reason)
        else:
            async with self._slots:
                if self.began is not None:
                    await self.began(call)
                result = await self._run(call, label)
                if self.ended is not None:
                    await self.ended(call, result)
                return result
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

    async def _run(self, call: BatchCall, label: CallLabel) -> CallResult:
        started = self._clock.monotonic()
        attempt = await self._attempt(call)
        noticed, again = "", False
        if attempt.is_empty and (label.usually_prints or self._printing.has_printed(call)):
            noticed = NOT_REPEATED
            if call.may_run_twice:
                again, attempt = True, await self._attempt(call)
                noticed = AGAIN_EMPTY if attempt.is_empty else AT_FIRST_EMPTY
        if attempt.error is None and not attempt.is_empty:
            self._printing.note(call)
        return CallResult(
            id=call.id,
            what=label.what,
            ok=attempt.error is None,
            text=attempt.output.text,
            blocks=attempt.output.blocks,
            error=attempt.error,
            exit_code=attempt.output.exit_code,
            empty_noticed=noticed,
            ran_again=again,
            seconds=self._clock.monotonic() - started,
            name=label.name,
            value=attempt.output.value,
            ended_by=attempt.ended_by,
        )

    async def _attempt(self, call: BatchCall) -> _Attempt:
        """One run of the tool, within the call's time."""
        kept = ClippedOutput()
        listening = True

        def emit(text: str) -> None:
            if listening:
                kept.add(text)
                self._context.on_output(text)
                if self.on_output is not None:
                    self.on_output(call.id, text)

        context = replace(self._context, call_id=call.id, on_output=emit)
        running = asyncio.ensure_future(self._guarded(call, context))
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

    async def _guarded(self, call: BatchCall, context: ToolContext) -> _Attempt:
        """What came of running the tool; every trouble of its own becomes a result."""
        try:
            with contain_exits():
                output = await call.tool.run(call.arguments, context)
        except ToolFailedError as failed:
            code = failed.exit_code
            by = failed.ended_by or ("" if code is None else f"exit {code}")
            output = ToolOutput(failed.output, exit_code=code)
            return _Attempt(output, redact(failed.says, _LONGEST_ERROR), by)
        except LeavingError as left:
            return _Attempt(ToolOutput(), redact(str(left), _LONGEST_ERROR), "crashed")
        except Exception as error:  # noqa: BLE001 -- the border of one tool call: its siblings go on
            kind = type(error).__name__
            try:
                words = redact(" ".join(str(error).split()), _LONGEST_ERROR)
            except Exception:  # noqa: BLE001 -- a broken __str__ must not hide its failure
                words = ""
            return _Attempt(ToolOutput(), f"crashed: {kind}: {words}".rstrip(": "), kind)
        return _Attempt(output)
