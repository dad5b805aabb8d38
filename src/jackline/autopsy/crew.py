"""Share the reading of many files with a second process, where that is safe and worth it.

Laws: (1) the answers come in the order of the work, whoever did it; (2) nothing is forked beside
threads, nor where forking is not the custom of the system: then one process does it all; (3) one
helper at most, so that memory stays bounded on any machine; (4) work whose helper died is done
again here.
Not here: what is done to a file (reading.py).
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

# Below this much work, a helper costs more than it saves.
WORTH_A_HELPER = 64 << 20
BATCH = 4 << 20

_TICKET = 4
# As many tickets as surely fit into a pipe; work beyond them is left to the first process.
_TICKETS = 8_000

Work = TypeVar("Work")
Answer = TypeVar("Answer")


def share(
    do: Callable[[Work], Answer],
    work: Sequence[Work],
    sizes: Sequence[int],
    *,
    reached: Callable[[int], None],
) -> Iterator[Answer]:
    """What `do` makes of each piece of work, in order; the answers must be picklable.

    `reached` hears from time to time how many pieces have been dealt with.
    """
    if sum(sizes) < WORTH_A_HELPER or not _can_share():
        for count, piece in enumerate(work, 1):
            yield do(piece)
            reached(count)
        return
    batches = list(_batches(work, sizes))
    answers = _with_helper(do, batches, reached)
    for number, batch in enumerate(batches):
        yield from answers.pop(number, None) or map(do, batch)
    reached(len(work))


def _can_share() -> bool:
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    return len(os.sched_getaffinity(0)) > 1


def _batches(work: Sequence[Work], sizes: Sequence[int]) -> Iterator[list[Work]]:
    batch: list[Work] = []
    held = 0
    for piece, size in zip(work, sizes, strict=True):
        batch.append(piece)
        held += size
        if held >= BATCH:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _with_helper(
    do: Callable[[Work], Answer],
    batches: Sequence[list[Work]],
    reached: Callable[[int], None],
) -> dict[int, list[Answer]]:
    """The answers to all batches; both processes draw tickets for the next one from one pipe."""
    draw, fill = os.pipe()
    take, give = os.pipe()
    os.write(fill, b"".join(n.to_bytes(_TICKET) for n in range(min(len(batches), _TICKETS))))
    os.close(fill)
    helper = os.fork()
    if helper == 0:
        _help(do, batches, draw, give)
    os.close(give)
    status = 1
    try:
        answers = _work(do, batches, draw, reached)
        with os.fdopen(take, "rb") as results:
            given = results.read()
        status = os.waitpid(helper, 0)[1]
    finally:
        os.close(draw)
        if status:
            _dismiss(helper)
    if status == 0:
        answers |= pickle.loads(given)  # noqa: S301 -- written by our own child, a moment ago
    return answers


def _work(
    do: Callable[[Work], Answer],
    batches: Sequence[list[Work]],
    draw: int,
    reached: Callable[[int], None],
) -> dict[int, list[Answer]]:
    answers: dict[int, list[Answer]] = {}
    while ticket := os.read(draw, _TICKET):
        number = int.from_bytes(ticket)
        answers[number] = [do(piece) for piece in batches[number]]
        reached(sum(len(batch) for batch in batches[:number]))
    return answers


def _help(
    do: Callable[[Work], Answer], batches: Sequence[list[Work]], draw: int, give: int
) -> None:
    """Work as the helper, and leave without running anything that belongs to the first process."""
    status = 1
    try:
        # Ctrl-C reaches both; only the first process shall answer it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        answers = _work(do, batches, draw, lambda _count: None)
        with os.fdopen(give, "wb") as results:
            pickle.dump(answers, results, pickle.HIGHEST_PROTOCOL)
        status = 0
    finally:
        os._exit(status)


def _dismiss(helper: int) -> None:
    """End a helper that is not needed any more, or that has ended by itself."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)
