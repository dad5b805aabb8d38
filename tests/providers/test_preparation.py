"""An upstream that fetches its login first delays only its own attempts, and reports failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from jackline.errors import JacklineError, UsageError
from jackline.event_loop import run
from jackline.lane_id import LaneId
from jackline.providers.provided_upstream import ProvidedUpstream
from jackline.providers.provider import AnthropicProvider
from jackline.providers.settings import UpstreamSettings
from jackline.upstream import Origin, UpstreamRequest
from tests.providers.exchanges import call
from tests.upstream.loopback import Recorder

LANE = LaneId("far", "claude-opus-4-8", "account")


class SlowToPrepare(AnthropicProvider):
    """A provider whose login takes a while, and which then cannot render."""

    is_ready = False

    def __init__(self, fails: Callable[[], Exception | None]) -> None:
        url = "http://127.0.0.1:1"
        super().__init__(UpstreamSettings("far", url), Origin(url))
        self._fails = fails

    async def prepare(self) -> None:
        await asyncio.sleep(0)
        error = self._fails()
        if isinstance(error, OSError | JacklineError):
            raise error

    def render(self, message: UpstreamRequest, model: str) -> UpstreamRequest:
        error = self._fails()
        if error is not None:
            raise error
        return super().render(message, model)


def record(fails: Callable[[], Exception | None], *, hang_up: bool = False) -> Recorder:
    async def main() -> Recorder:
        upstream = ProvidedUpstream({"far": SlowToPrepare(fails)})
        handler = Recorder()
        attempt = upstream.start(call(), LANE, handler)
        attempt.pause()
        if hang_up:
            attempt.hang_up()
            await asyncio.sleep(0.01)
        else:
            attempt.resume()
            await handler.last_word()
        await upstream.close()
        return handler

    return run(main())


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ValueError("a header with a line end: sk-secret"), 400, "the request cannot be sent"),
        (UsageError("The login has run out.", hint="log in again"), 401, "log in again"),
    ],
)
def test_a_request_that_cannot_be_sent_is_answered_with_an_error(
    error: Exception, status: int, words: str
) -> None:
    handler = record(lambda: error)
    assert handler.status == status
    reported = json.loads(handler.body)["error"]["message"]
    assert words in reported
    assert "sk-secret" not in reported


def test_a_login_that_cannot_be_reached_breaks_the_attempt() -> None:
    assert record(lambda: ConnectionRefusedError(111, "refused")).words == ["broke"]


def test_once_it_is_prepared_the_attempt_is_made() -> None:
    assert record(lambda: None).words == ["broke"], "nobody listens there"


def test_after_hang_up_nothing_is_reported() -> None:
    assert record(lambda: None, hang_up=True).words == []
