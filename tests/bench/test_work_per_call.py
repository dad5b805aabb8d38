"""One more call of a known client takes no more functions and lines of ours than it did.

Rules: (1) work is counted, never timed, so that a loaded machine changes nothing; (2) the traffic
is that of the gateway bench; (3) what other work of the service comes in between only adds, so the
smallest count of several calls is that of a call.

Counted were 250 functions and 1396 lines, of a stream 252 and 1475, with Python 3.11 to 3.13 alike
but for 20 lines. Whoever needs more for every call raises the limits in the same commit, and says
there what each call gets for it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import pytest

import jackline
from gateway_bench.traffic import SMALL, body_text, build, json_answer, stream_answer
from tests.assembly.world import gateway, port_of, provider, read_answer, run

TraceFunction: TypeAlias = Callable[[FrameType, str, object], "TraceFunction | None"]

_SOURCE = str(Path(jackline.__file__).parent)
_CALLS = 12
_WARM_UP = 4


class CountedWork:
    """What Jackline's own code did: its functions that were called, and how many lines ran."""

    def __init__(self) -> None:
        self.functions: Counter[str] = Counter()
        self.lines = 0

    def enter(self, frame: FrameType, _event: str, _argument: object) -> TraceFunction | None:
        code = frame.f_code
        if not code.co_filename.startswith(_SOURCE):
            return None
        # A comprehension is a function of its own in Python 3.11, and none from 3.12 on.
        if not code.co_name.startswith("<"):
            self.functions[code.co_qualname] += 1
        return self._run

    def _run(self, _frame: FrameType, event: str, _argument: object) -> TraceFunction:
        # Each turn of a loop is one more line, also where all of it stands on one.
        self.lines += event == "line"
        return self._run


@contextmanager
def counting() -> Iterator[CountedWork]:
    work, before = CountedWork(), sys.gettrace()
    sys.settrace(work.enter)
    try:
        yield work
    finally:
        sys.settrace(before)


async def work_of_calls(folder: Path, *, stream: bool) -> list[CountedWork]:
    """The work of each of several calls on one connection, the first ones left out."""
    answer = stream_answer() if stream else json_answer()
    found = []
    async with provider(answer) as (_, url), gateway(folder, url) as service:
        port = port_of(service.url)
        text = body_text(SMALL, stream=stream)
        sent = build(text, port=port, session="s1", key="sk-ant-api03-" + "bench-" * 15)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(_WARM_UP + _CALLS):
            with counting() as work:
                writer.write(b"".join(sent.numbered(number)))
                got = await read_answer(reader)
            assert got.status == 200
            found.append(work)
        writer.close()
    return found[_WARM_UP:]


@pytest.mark.parametrize(
    ("stream", "most_functions", "most_lines"), [(False, 254, 1420), (True, 256, 1500)]
)
def test_a_call_does_no_more_work_than_it_did(
    tmp_path: Path, stream: bool, most_functions: int, most_lines: int
) -> None:
    works = run(work_of_calls(tmp_path, stream=stream))
    least = min(works, key=lambda work: work.functions.total())
    assert least.functions.total() <= most_functions, least.functions.most_common()
    assert min(work.lines for work in works) <= most_lines
