"""Open a gateway for one side of a drill, with the settings that users get by default.

Laws: (1) it listens on the loopback, on a free port unless it is watched at one, and its state is
gone when the drill is over; (2) in real time it is a process of its own, started as a user would;
in scaled time it lives in this one, by the drill's clock; (3) no configuration of the user's
reaches it.
Not here: what the gateway does (assembly/ and below).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from jackline.assembly import Service
from jackline.assembly.state_dir import StateDir
from jackline.config import Config
from jackline.drills.door import Door
from jackline.drills.lookout import NOBODY, Lookout
from jackline.drills.pace import Pace
from jackline.drills.stopping import stop
from jackline.errors import InternalError
from jackline.events import ServiceNoted
from jackline.gateway.settings import (
    GatewaySettings,
    HoldSettings,
    ListenSettings,
)
from jackline.journal import JournalReader
from jackline.journal.settings import JournalSettings
from jackline.programs import own_command
from jackline.providers.settings import UpstreamSettings

# More than any drill has requests.
MOST_ATTEMPTS = 100_000


_UNHURRIED = 4.0


@asynccontextmanager
async def gateway(
    upstream: str, pace: Pace, watched: Lookout = NOBODY, state: Path | None = None
) -> AsyncIterator[str]:
    """The base URL of a gateway before this one upstream, for as long as the block runs."""
    async with gateway_before([UpstreamSettings(url=upstream)], pace, watched, state) as door:
        yield door.url


@asynccontextmanager
async def gateway_before(
    upstreams: Sequence[UpstreamSettings],
    pace: Pace,
    watched: Lookout = NOBODY,
    state: Path | None = None,
) -> AsyncIterator[Door]:
    """A gateway before these upstreams, for as long as the block runs.

    `state` is its state folder, if it is to have one that is there before or after it.
    """
    with tempfile.TemporaryDirectory(
        prefix="jackline-drill-", ignore_cleanup_errors=True
    ) as folder:
        opened = _process if pace.speed == 1.0 else _in_this_process
        state = state or Path(folder) / "state"
        async with opened(upstreams, pace, state, watched.port) as url:
            watched.opened(url, state)
            door = Door(url)
            yield door
        with JournalReader(StateDir(state).journal) as journal:
            door.failed = journal.failed_attempts(0.0, math.inf, MOST_ATTEMPTS)


@asynccontextmanager
async def _in_this_process(
    upstreams: Sequence[UpstreamSettings], pace: Pace, state: Path, port: int
) -> AsyncIterator[str]:
    settings = GatewaySettings(
        listen=ListenSettings(port=port),
        upstreams=tuple(upstreams),
        hold=HoldSettings(
            # Of all that the gateway waits for, only this is measured by the machine's own clock.
            ping_every=pace.real(HoldSettings().ping_every),
            # Hurried, a busy machine's delays would look like long waits: it is given real seconds.
            commit_after=min(240.0, max(HoldSettings().commit_after, _UNHURRIED * pace.speed)),
        ),
    )
    config = Config(settings, state, JournalSettings(), "warning", {}, ())
    async with Service(config, clock=pace, beside_flows=True) as service:
        words = f"time passes {pace.speed:g} times as fast"
        service.observatory.announce(ServiceNoted(pace.wall(), "drill", words))
        yield service.url


@asynccontextmanager
async def _process(
    upstreams: Sequence[UpstreamSettings], _pace: Pace, state: Path, port: int
) -> AsyncIterator[str]:
    StateDir(state).make()
    config = state / "jackline.toml"
    config.write_text("\n".join(_lines(upstreams)), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *own_command("up", "--port", str(port or _free_port())),
        *("--state", str(state), "--config", str(config)),
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


def _lines(upstreams: Iterable[UpstreamSettings]) -> Iterator[str]:
    """The upstreams as a user writes them down."""
    for each in upstreams:
        yield "[[upstream]]"
        for key in ("name", "url", "kind", "credential"):
            # JSON's strings are TOML's, too.
            yield f"{key} = {json.dumps(getattr(each, key))}"
        models = ", ".join(f"{json.dumps(a)} = {json.dumps(b)}" for a, b in each.models.items())
        yield f"models = {{ {models} }}"


def _free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


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
