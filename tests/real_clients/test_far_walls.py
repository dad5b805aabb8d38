"""Clients that pay by key give up at once at a far wall that another one has met before."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from jackline.events import CallEnded
from tests.assembly.world import (
    MODEL,
    ask,
    gateway,
    http,
    journalled,
    provider,
    question,
    request,
    run,
)
from tests.planted import KEY
from tests.real_clients.anthropic_sdk import call_with_sdk, sdk_folder
from tests.real_clients.clients import PATIENCE, claude_binary, environment
from tests.real_clients.old_client import old_claude_binary

pytestmark = pytest.mark.real_client

CLAUDES = [pytest.param(old_claude_binary, id="2.1.197"), pytest.param(claude_binary, id="2.1.325")]
WALL = json.dumps(
    {
        "type": "error",
        "error": {
            "type": "rate_limit_error",
            "message": "This request would exceed your account's rate limit. Please try again"
            " later.",
        },
    }
).encode()
REFUSED = http(
    429, WALL, (b"Content-Type", b"application/json"), (b"retry-after", b"10800"), reason=b"No"
)
# Enough for a client that spins to show it; none of them is waited for.
RETRIES = "10"


@pytest.mark.parametrize("fetched", CLAUDES)
def test_claude_code_with_a_key_asks_once_and_names_the_reset(
    fetched: Callable[[], Path], tmp_path: Path
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()

    def prompt(env: Mapping[str, str]) -> bytes:
        command = [str(fetched()), "-p", "TASK: say hello.", "--model", MODEL]
        done = subprocess.run(
            [*command, "--output-format", "stream-json", "--verbose"],
            cwd=project,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.stdout

    async def main() -> tuple[bytes, int]:
        async with provider(REFUSED) as (vendor, url), gateway(tmp_path, url) as service:
            first = await ask(service.url, request(body=question()))
            assert first.status == 429
            env = {**environment(home, service.url), "ANTHROPIC_API_KEY": KEY}
            env["CLAUDE_CODE_MAX_RETRIES"] = RETRIES
            return await asyncio.to_thread(prompt, env), len(vendor.asked)

    said, asked = run(main())
    assert asked == 1, "nothing was sent to the vendor again"
    refused = calls_of_client(tmp_path)
    assert len(refused) <= 3, "it did not spin"
    assert b"It resets at" in said
    assert b"api_retry" not in said


def test_the_anthropic_sdk_raises_at_once_whatever_its_retries(tmp_path: Path) -> None:
    sdk_folder()
    count = 4

    async def main() -> None:
        async with provider(REFUSED) as (_, url), gateway(tmp_path, url) as service:
            await ask(service.url, request(body=question()))
            called = await call_with_sdk(service.url, count, retries=5)
            assert {each.error for each in called} == {"RateLimitError"}

    run(main())
    assert len(calls_of_client(tmp_path)) == count


def calls_of_client(folder: Path) -> list[CallEnded]:
    """All but the first, which met the wall."""
    return journalled(folder)[1:]
