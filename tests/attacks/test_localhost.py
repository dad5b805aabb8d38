"""Whoever takes the port of ::1 does not answer for a gateway that clients call `localhost`."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from jackline.assembly import Service
from jackline.gateway.connection import Exchange
from jackline.gateway.listener import Listener
from jackline.gateway.settings import GatewaySettings, ListenSettings
from tests.assembly.world import config_for, provider
from tests.assembly.world import run as with_services
from tests.gateway.serving import LOOPS, listening, run


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(
    not has_ipv6() and not os.environ.get("CI"), reason="this machine has no ::1; CI must have it"
)


def echo(exchange: Exchange) -> None:
    exchange.respond(200, [], b"the gateway")


def squatter() -> socket.socket:
    """A program that listens at some port of ::1, which is free at 127.0.0.1."""
    taken = socket.create_server(("::1", 0), family=socket.AF_INET6)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", taken.getsockname()[1]))
    return taken


@pytest.mark.parametrize("loop", LOOPS)
def test_a_gateway_has_its_port_at_both_addresses_of_localhost(loop: str) -> None:
    async def main() -> None:
        async with listening(echo) as listener:
            assert not listener.lacks_localhost
            for host in ("127.0.0.1", "::1"):
                reader, writer = await asyncio.open_connection(host, listener.port)
                writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert (await reader.read()).endswith(b"the gateway")
                writer.close()
            with pytest.raises(OSError) as refused:  # noqa: PT011 -- its number is the point
                socket.create_server(("::1", listener.port), family=socket.AF_INET6)
            assert refused.value.errno == errno.EADDRINUSE
            port = listener.port
        # Both are free again.
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            socket.create_server((host, port), family=family).close()

    run(main(), loop)


def test_a_port_that_somebody_else_has_at_one_of_them_is_no_reason_to_fail() -> None:
    async def main() -> None:
        with squatter() as taken:
            port = taken.getsockname()[1]
            listener = Listener(GatewaySettings(listen=ListenSettings(port=port)), echo)
            await listener.open()
            assert (listener.port, listener.lacks_localhost) == (port, True)
            await listener.close(0.0)

    run(main())


def test_status_warns_of_whoever_listens_where_localhost_may_lead_to(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider() as (_, url):
            config = config_for(tmp_path, url)
            with squatter() as taken:
                port = taken.getsockname()[1]
                listen = replace(config.gateway.listen, port=port)
                gateway = replace(config.gateway, listen=listen)
                async with Service(replace(config, gateway=gateway)) as service:
                    said = str(service.status())
                    assert f"another program listens at [::1]:{port}" in said
                    assert "Write 127.0.0.1 in their base URL" in said

    with_services(main())
