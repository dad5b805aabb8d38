"""Certificates that are made for one run of the tests, and the loops to run on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest
import trustme

from jackline.event_loop import run as run_on_fastest

Run: TypeAlias = Callable[[Coroutine[object, object, None]], None]


def run_on_asyncio(main: Coroutine[object, object, None]) -> None:
    asyncio.run(main)


@pytest.fixture(params=[run_on_fastest, run_on_asyncio], ids=["fastest", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Both loops that the product runs on."""
    chosen: Run = request.param
    return chosen


@dataclass(frozen=True, slots=True)
class Certified:
    """A server's side of TLS for `127.0.0.1` and `provider.test`, and the file that trusts it."""

    server: ssl.SSLContext
    ca_file: str


@pytest.fixture(scope="session")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    """TLS that only whoever has the file trusts."""
    authority = trustme.CA()
    folder: Path = tmp_path_factory.mktemp("ca")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2", "http/1.1"])
    authority.issue_cert("127.0.0.1", "provider.test").configure_cert(context)
    return Certified(context, str(folder / "ca.pem"))
