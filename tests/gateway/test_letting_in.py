"""Clients that wait at the port are let in together, however long the turns of the loop are."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest

from jackline.gateway.connection import Exchange
from jackline.gateway.listener import Listener
from jackline.gateway.settings import GatewaySettings, ListenSettings
from tests.gateway.serving import LOOPS, run

WAITING = 200
FEW_TURNS = 12


@pytest.mark.parametrize("loop", LOOPS)
def test_all_that_wait_are_let_in_within_a_few_turns(loop: str) -> None:
    """One in each turn let turns of a tenth of a second keep the twentieth out for two seconds."""

    async def play() -> None:
        turns_of = asyncio.get_running_loop()
        listener = Listener(GatewaySettings(listen=ListenSettings(port=0)), _nothing)
        await listener.open()
        turns, over = 0, asyncio.Event()

        def turn() -> None:
            nonlocal turns
            turns += 1
            if listener.connections < WAITING and turns < 10 * WAITING:
                turns_of.call_soon(turn)
            else:
                over.set()

        with ExitStack() as clients:
            # The kernel takes them; nothing of the loop runs meanwhile.
            for _ in range(WAITING):
                address = ("127.0.0.1", listener.port)
                clients.enter_context(socket.create_connection(address, timeout=30))
            turn()
            await over.wait()
            let_in = listener.connections
        await listener.close(0.0)
        assert (let_in, turns <= FEW_TURNS) == (WAITING, True), turns
        # And nobody listens any more.
        with socket.socket() as late:
            assert late.connect_ex(("127.0.0.1", listener.port)) != 0

    run(play(), loop)


def _nothing(_exchange: Exchange) -> None:
    """No request comes."""
