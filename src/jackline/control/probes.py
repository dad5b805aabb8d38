"""Probe everything between this machine and its upstreams, for `jackline doctor`.

Rules: (1) no paid call: models are listed, or the front page of a cloud is fetched; (2) every
probe has a limit of time and size, and a failed one is reported, never raised; (3) nothing is
changed; (4) the program that holds a port is named where the system knows it, and never guessed.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path

from jackline.clock import Clock
from jackline.control.doctor import Reached, StateSeen
from jackline.errors import JournalError, UsageError
from jackline.journal import JournalReader
from jackline.lane_id import LaneId
from jackline.programs import find_program
from jackline.providers.provided_upstream import origin_of, provider_for
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.state_dir import StateDir
from jackline.upstream.bounded_answers import fetch
from jackline.upstream.http_upstream import HttpUpstream
from jackline.upstream.interface import UpstreamRequest

PATIENCE = 10.0
"""Seconds for one upstream."""
_MAX_BYTES = 1024 * 1024
_DAY = 86_400.0
_LISTENING = "0A"
_TOOL_SECONDS = 5


async def reach(settings: UpstreamSettings, environ: Mapping[str, str], clock: Clock) -> Reached:
    """Probe this upstream; UsageError when its settings cannot be used."""
    origin = origin_of(settings, environ)
    address, proxy = origin.address, origin.proxy_address
    is_cloud = settings.kind.facts.cloud is not None
    reached = Reached(
        settings.name,
        address.authority,
        secure=address.scheme == "https",
        on_this_machine=address.is_loopback,
        proxy=None if proxy is None else proxy.authority,
        shows_key=settings.credential in (Credential.API_KEY, Credential.BEARER) and not is_cloud,
    )
    is_name = proxy is None
    with suppress(ValueError):
        ipaddress.ip_address(address.host)
        is_name = False
    if is_name:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PATIENCE):
                found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except TimeoutError:
            return replace(reached, lookup_error=f"no answer within {PATIENCE:g} s")
        except OSError as error:
            return replace(reached, lookup_error=error.strerror or str(error))
        reached = replace(reached, addresses=len({entry[4][0] for entry in found}))
    request = UpstreamRequest(b"GET", b"/", ())
    if not is_cloud:
        headers = [(b"accept", b"application/json")]
        if settings.kind is UpstreamKind.ANTHROPIC:
            headers.insert(0, (b"anthropic-version", b"2023-06-01"))
        request = UpstreamRequest(b"GET", b"/v1/models", tuple(headers))
        request = provider_for(settings, environ).render(request, "")
    upstream = HttpUpstream({"doctor": origin})
    try:
        answer = await fetch(
            upstream, request, LaneId("doctor"), most_bytes=_MAX_BYTES, seconds=PATIENCE
        )
    finally:
        await upstream.close()
    reached = replace(reached, error=answer.error, headers=answer.headers, body=answer.body)
    if answer.error is not None:
        return reached
    try:
        skew = parsedate_to_datetime(answer.headers["date"]).timestamp() - clock.wall()
    except (KeyError, ValueError):
        skew = None  # no date, or not one that can be parsed
    return replace(reached, status=answer.status, skew=skew)


async def credential_problem(
    settings: UpstreamSettings, environ: Mapping[str, str]
) -> UsageError | OSError | None:
    """Why the upstream's own credential is missing; None if it is not, or none is needed."""
    try:
        provider = provider_for(settings, environ)
        if not provider.is_ready:
            async with asyncio.timeout(PATIENCE):
                await provider.prepare()
    except TimeoutError:
        return TimeoutError(f"the vendor's library gave none within {PATIENCE:g} s")
    except (UsageError, OSError) as error:
        return error
    return None


def look_at_state(folder: Path, now: float) -> StateSeen:
    """Probe the state folder, the disk it is on, and its journal."""
    # The folder itself, or the nearest one above it that exists.
    there = next((one for one in (folder, *folder.parents) if one.exists()), folder)
    seen = StateSeen(str(folder))
    if not there.is_dir():
        seen = replace(seen, problem=f"{there} is not a folder")
    elif not os.access(there, os.W_OK | os.X_OK):
        seen = replace(seen, problem=f"{there} cannot be written to")
    if there == folder and os.name != "nt":
        seen = replace(seen, readable_by_others=bool(folder.stat().st_mode & 0o077))
    try:
        seen = replace(seen, free_bytes=shutil.disk_usage(there).free)
    except OSError:
        seen = replace(seen, free_bytes=None)  # reported as not known
    journal = StateDir(folder).journal
    if not journal.exists():
        return seen
    try:
        with JournalReader(journal) as reader:
            return replace(seen, calls=reader.totals(now - _DAY).calls)
    except JournalError as error:
        return replace(seen, journal=error.message, journal_fix=error.hint)


def is_port_taken(host: str, port: int) -> bool:
    """Whether another program listens where the gateway would."""
    if port == 0:
        return False
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if os.name != "nt":
            # As the gateway's own listener does: connections that are just closing do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno in (errno.EADDRINUSE, errno.EACCES)
    return False


def port_holder(port: int) -> str | None:
    """The holder as "nginx (process 812)", or None when it is not known."""
    if Path("/proc/net/tcp").exists():
        pid = _pid_on_linux(port)
    elif os.name == "nt":
        lines = [line.split() for line in _output("netstat", "-ano", "-p", "tcp").splitlines()]
        held = [
            fields[-1]
            for fields in lines
            if "LISTENING" in fields and fields[1].endswith(f":{port}")
        ]
        pid = next(iter(held), "")
    else:
        pid = next(iter(_output("lsof", "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-t").split()), "")
    if not pid.isdigit():
        return None
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it has just ended, or this system has no such file
        if os.name == "nt":
            rows = _output("tasklist", "/fi", f"PID eq {pid}", "/fo", "csv", "/nh")
            name = rows.partition(",")[0].strip('" \r\n')
        else:
            name = Path(_output("ps", "-p", pid, "-o", "comm=").strip()).name
    return f"{name} (process {pid})" if name else f"process {pid}"


def _pid_on_linux(port: int) -> str:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue  # no IPv6 here
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            if any(str(link.readlink()) in inodes for link in folder.iterdir()):
                return folder.parent.name
        except OSError:
            continue  # another user's process, or one that has just ended
    return ""


def _output(tool: str, *arguments: str) -> str:
    path = find_program(tool)
    if path is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603 -- one of four system tools, with numbers
            [path, *arguments], capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
