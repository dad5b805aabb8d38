"""The user's own gateway as an origin: each connection is proved before anything is sent on it.

Rules: (1) whoever holds the gateway's port without the installation key gets a random number, and
that is all; (2) a failed proof is an `UnprovenError` that names the address: to whoever calls, the
gateway is not there; (3) bytes that come between the proof and its use end the connection.
"""

from __future__ import annotations

import asyncio

from jackline.gateway_proof import Challenge, UnprovenError
from jackline.private_files import installation_key
from jackline.upstream.origin import Origin


def own_gateway(url: str) -> Origin:
    """The origin of the gateway at this URL, which has to prove itself on every connection."""
    authority = Origin(url).address.authority

    async def check(transport: asyncio.Transport) -> None:
        try:
            await _prove(transport, authority)
        except UnprovenError as error:
            words = f"the program at {authority} did not prove to be your gateway: {error}"
            raise UnprovenError(words, error.status) from error

    return Origin(url, check=check)


async def _prove(transport: asyncio.Transport, authority: str) -> None:
    try:
        key = installation_key(make=False)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UnprovenError(f"there is no installation key to prove it with: {why}") from error
    answer = _Answer(Challenge(authority, key), transport)
    transport.set_protocol(answer)
    answer.ask()
    await answer.proved


class _Answer(asyncio.Protocol):
    """Sends the question, and judges what comes back."""

    def __init__(self, challenge: Challenge, transport: asyncio.Transport) -> None:
        self._challenge = challenge
        self._transport = transport
        self.proved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The task that waits for it may be gone by then; that is no error to report.
        self.proved.add_done_callback(lambda done: done.cancelled() or done.exception())

    def ask(self) -> None:
        self._transport.write(self._challenge.question)

    def data_received(self, data: bytes) -> None:
        if self.proved.done():
            self._transport.abort()
            return
        try:
            if self._challenge.is_met(data, self._transport.get_extra_info("peername")):
                self.proved.set_result(None)
        except UnprovenError as error:
            self.proved.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.proved.done():
            why = "" if exc is None else f" ({exc})"
            self.proved.set_exception(UnprovenError(f"it hung up when asked to prove itself{why}"))
