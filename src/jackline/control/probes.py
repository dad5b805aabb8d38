"""Probe everything between this machine and its upstreams, for `jackline doctor`.

Rules: (1) no paid call: models are listed, or the front page of a cloud is fetched; (2) every
probe has a limit of time and size, and a failed one is reported, never raised; (3) nothing is
changed.
Not here: what it means (doctor.py, host_findings.py).
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path

from jackline.clock import Clock
from jackline.control.doctor import Reached, StateSeen
from jackline.errors import JournalError, UsageError
from jackline.journal import JournalReader
from jackline.providers.provided_upstream import origin_of, provider_for
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.state_dir import StateDir
from jackline.upstream.bounded_answers import fetch
from jackline.upstream.http_upstream import HttpUpstream
from jackline.upstream.interface import UpstreamRequest
from jackline.upstream.origin import Origin

PATIENCE = 10.0
"""Seconds for one upstream, all in all."""
_MOST_BYTES = 1024 * 1024
_DAY = 86_400.0
_OWN = (Credential.API_KEY, Credential.BEARER)
_VERSION = (b"anthropic-version", b"2023-06-01")


async def reach(settings: UpstreamSettings, environ: Mapping[str, str], clock: Clock) -> Reached:
    """What comes of asking this upstream; UsageError when its settings cannot be used."""
    origin = origin_of(settings, environ)
    proxy = origin.proxy_address
    reached = Reached(
        settings.name,
        origin.address.authority,
        secure=origin.address.scheme == "https",
        on_this_machine=origin.address.is_loopback,
        proxy=None if proxy is None else proxy.authority,
        shows_key=settings.credential in _OWN and settings.kind.facts.cloud is None,
    )
    if proxy is None and not _is_number(origin.address.host):
        try:
            async with asyncio.timeout(PATIENCE):
                reached = replace(reached, addresses=await _look_up(origin))
        except TimeoutError:
            return replace(reached, lookup_error=f"no answer within {PATIENCE:g} s")
        except OSError as error:
            return replace(reached, lookup_error=error.strerror or str(error))
    return await _asked(reached, origin, _question(settings, environ), clock)


async def credential_problem(
    settings: UpstreamSettings, environ: Mapping[str, str]
) -> UsageError | OSError | None:
    """Why the upstream's own credential cannot be had; None when it can, or none is needed."""
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
    """The state folder, the disk it is on, and its journal."""
    seen = StateSeen(str(folder), problem=_folder_problem(folder))
    there = _nearest(folder)
    if there == folder and os.name != "nt":
        seen = replace(seen, readable_by_others=bool(folder.stat().st_mode & 0o077))
    try:
        seen = replace(seen, free_bytes=shutil.disk_usage(there).free)
    except OSError:
        # What cannot be told is told as such.
        seen = replace(seen, free_bytes=None)
    journal = StateDir(folder).journal
    if not journal.exists():
        return seen
    try:
        with JournalReader(journal) as reader:
            return replace(seen, calls=reader.totals(now - _DAY).calls)
    except JournalError as error:
        return replace(seen, journal=error.message, journal_fix=error.next)


def is_port_taken(host: str, port: int) -> bool:
    """Whether somebody else listens where the gateway would."""
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


def _question(settings: UpstreamSettings, environ: Mapping[str, str]) -> UpstreamRequest:
    """What costs nothing to ask."""
    if settings.kind.facts.cloud is not None:
        return UpstreamRequest(b"GET", b"/", ())
    headers = (_VERSION,) if settings.kind is UpstreamKind.ANTHROPIC else ()
    asked = UpstreamRequest(b"GET", b"/v1/models", (*headers, (b"accept", b"application/json")))
    return provider_for(settings, environ).render(asked, "")


async def _look_up(origin: Origin) -> int:
    address = origin.address
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return len({entry[4][0] for entry in found})


async def _asked(
    reached: Reached, origin: Origin, message: UpstreamRequest, clock: Clock
) -> Reached:
    upstream = HttpUpstream({"doctor": origin})
    try:
        told = await fetch(upstream, message, "doctor/", most_bytes=_MOST_BYTES, seconds=PATIENCE)
    finally:
        await upstream.close()
    return replace(
        reached,
        error=told.error,
        status=None if told.error is not None else told.status,
        headers=told.headers,
        body=told.body,
        skew=None if told.error is not None else _skew(told.headers, clock.wall()),
    )


def _skew(headers: Mapping[str, str], now: float) -> float | None:
    try:
        return parsedate_to_datetime(headers["date"]).timestamp() - now
    except (KeyError, ValueError):
        return None  # not told, or not as a date


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _folder_problem(folder: Path) -> str | None:
    there = _nearest(folder)
    if not there.is_dir():
        return f"{there} is not a folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written to"
    return None


def _nearest(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next((one for one in (folder, *folder.parents) if one.exists()), folder)
