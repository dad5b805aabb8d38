"""Open a gateway for one side of a drill, with the settings that users get by default.

Laws: (1) it listens on a free port of the loopback, and its state is gone when the drill is over;
(2) in real time it is a process of its own, started as a user would; in scaled time it lives in
this one, by the drill's clock; (3) no configuration of the user's reaches it.
Not here: what the gateway does (assembly/ and below).
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from jackline.assembly import Service
from jackline.config import Config
from jackline.drills.pace import Pace
from jackline.drills.stopping import stop
from jackline.errors import InternalError
from jackline.gateway.settings import (
    GatewaySettings,
    HoldSettings,
    ListenSettings,
)
from jackline.journal.settings import JournalSettings
from jackline.providers.settings import UpstreamSettings


@asynccontextmanager
async def gateway(upstream: str, pace: Pace) -> AsyncIterator[str]:
    """The base URL of a gateway before this upstream, for as long as the block runs."""
    with tempfile.TemporaryDirectory(
        prefix="jackline-drill-", ignore_cleanup_errors=True
    ) as folder:
        opened = _process if pace.speed == 1.0 else _in_this_process
        async with opened(upstream, pace, Path(folder)) as url:
            yield url


@asynccontextmanager
async def _in_this_process(upstream: str, pace: Pace, folder: Path) -> AsyncIterator[str]:
    settings = GatewaySettings(
        listen=ListenSettings(port=0),
        upstreams=(UpstreamSettings(url=upstream),),
        # Of all that the gateway waits for, only this is measured by the machine's own clock.
        hold=HoldSettings(ping_every=pace.real(HoldSettings().ping_every)),
    )
    config = Config(settings, folder, JournalSettings(), "warning", {}, ())
    async with Service(config, clock=pace) as service:
        yield service.url


@asynccontextmanager
async def _process(upstream: str, _pace: Pace, folder: Path) -> AsyncIterator[str]:
    nothing_set = folder / "jackline.toml"
    nothing_set.touch()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "jackline", "up", "--port", _free_port(), "--upstream", upstream),
        *("--state", str(folder / "state"), "--config", str(nothing_set)),
        env={name: value for name, value in os.environ.items() if "JACKLINE_" not in name},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        log = process.stderr
        if log is None:
            raise AssertionError("its log was asked for")
        url = await _told_url(log)
        # A log that nobody reads would stop the gateway once the pipe is full.
        reading = asyncio.create_task(_read_on(log))
        try:
            yield url
        finally:
            reading.cancel()
    finally:
        await stop(process)


def _free_port() -> str:
    """A port that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return str(listening.getsockname()[1])


async def _told_url(log: asyncio.StreamReader) -> str:
    last_words = "nothing"
    async for line in log:
        words = line.decode("utf-8", "replace").strip()
        if words.startswith("http://"):
            return words.split()[0]
        last_words = words or last_words
    raise InternalError(
        f"the gateway of the drill did not start; it said: {last_words}",
        next="jackline up shows whether one starts here at all",
    )


async def _read_on(log: asyncio.StreamReader) -> None:
    async for _line in log:
        pass
