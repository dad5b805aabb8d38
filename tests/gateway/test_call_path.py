"""How many files and functions one call enters before its first byte goes to the vendor.

A reader who follows a call has to open these files: the limits keep the path from growing again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import jackline
from tests.assembly.world import (
    answered,
    gateway,
    port_of,
    provider,
    question,
    read_answer,
    request,
    run,
)

_SOURCE = str(Path(jackline.__file__).parent)


class CallPath:
    """The functions of Jackline that were entered, from the client's bytes to the upstream's."""

    def __init__(self) -> None:
        self.functions: dict[str, None] = {}
        self._is_inside = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_SOURCE):
            return
        file = code.co_filename.removeprefix(_SOURCE)
        if code.co_name == "buffer_updated":
            self._is_inside = True
        if self._is_inside:
            self.functions[f"{file[1:]}:{code.co_qualname}"] = None
        if code.co_name == "flush" and "upstream" in file:
            self._is_inside = False

    @property
    def files(self) -> set[str]:
        return {name.partition(":")[0] for name in self.functions}


@contextmanager
def watching() -> Iterator[CallPath]:
    path = CallPath()
    sys.setprofile(path)
    try:
        yield path
    finally:
        sys.setprofile(None)


async def paths(folder: Path) -> tuple[CallPath, CallPath]:
    """The path of the first call of a gateway, and that of a later one of the same client."""
    raw = request(
        b"POST",
        b"/v1/messages",
        question("hi", stream=True),
        (b"User-Agent", b"claude-cli/2.1.197 (external, cli)"),
        (b"X-Claude-Code-Session-Id", b"s1"),
    )
    async with provider(answered()) as (_, url), gateway(folder, url) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(service.url))
        with watching() as first:
            writer.write(raw)
            await read_answer(reader)
        with watching() as later:
            writer.write(raw)
            await read_answer(reader)
        writer.close()
    return first, later


def test_a_call_enters_few_files_before_its_first_byte_goes_out(tmp_path: Path) -> None:
    first, later = run(paths(tmp_path))
    # Background work of the service may come in between, in a file or two of its own.
    assert len(first.files) <= 45, sorted(first.files)
    assert len(later.files) <= 36, sorted(later.files)
    assert len(later.functions) <= 120, sorted(later.functions)
