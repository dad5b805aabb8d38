"""What answers tell of a subscription's windows is foretold in status and status line."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any, cast

from jackline.assembly import StateDir
from jackline.simulator.limits import QuotaWindowSettings, WindowClaim
from jackline.simulator.provider import ProviderSettings
from jackline.testing import SimulatedProvider
from tests.assembly.world import gateway, run


def ask(url: str, path: str, body: object, headers: dict[str, str]) -> bytes:
    data = json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 -- our own loopback
        url + path, data, {"content-type": "application/json", **headers}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        return bytes(answer.read())


def test_a_window_that_fills_up_is_shown(tmp_path: Path) -> None:
    window = QuotaWindowSettings(WindowClaim.FIVE_HOUR, tokens=1000, used=700)
    settings = ProviderSettings(windows=(window,))

    async def main() -> None:
        with SimulatedProvider(settings) as provider:
            async with gateway(tmp_path, provider.url) as service:
                message = {
                    "model": "claude-opus-4-8",
                    "max_tokens": 10,
                    "messages": [{"role": "user", "content": "hello"}],
                }
                key = {"x-api-key": "sk-ant-planted-no"}
                await asyncio.to_thread(ask, service.url, "/v1/messages", message, key)
                (told,) = cast("list[dict[str, Any]]", service.status()["forecast"])
                assert told["window"] == "5h"
                assert 0.7 <= told["used"] < 1
                running = StateDir(service.config.state_dir).running()
                assert running is not None
                token = {"x-jackline-control": running.token}
                line = await asyncio.to_thread(
                    ask, service.url, "/_jackline/statusline", {"session_id": "s"}, token
                )
                assert "5h window 7" in line.decode()

    run(main())
