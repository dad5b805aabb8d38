"""Fetch the anthropic Python SDK, and run calls with it in a process of its own.

Rules: (1) it comes from the package index by name and is kept in .cache, apart from the tests' own
packages; (2) it retries by itself only where a test says so, so that an error which reaches it is
seen.
Not here: what is asserted (test_anthropic_sdk.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "anthropic==2.8.0"
CACHE = Path(__file__).parents[2] / ".cache" / "real_clients" / "anthropic-sdk"

_SCRIPT = """
import asyncio, json, sys
import anthropic

url, count, retries = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = anthropic.AsyncAnthropic(api_key="sk-ant-dummy", base_url=url, max_retries=retries)
asked = dict(model="claude-sonnet-4-6", max_tokens=1000)

async def call(number, kind):
    messages = [{"role": "user", "content": f"CALL-{number}"}]
    try:
        if kind == "stream":
            async with client.messages.stream(messages=messages, **asked) as stream:
                message = await stream.get_final_message()
        else:
            message = await client.messages.create(messages=messages, **asked)
    except anthropic.APIError as error:
        return {"text": "", "stop": "", "error": type(error).__name__}
    text = "".join(block.text for block in message.content)
    return {"text": text, "stop": message.stop_reason, "error": ""}

async def main():
    calls = [call(n, "stream" if n % 2 else "whole") for n in range(count)]
    print(json.dumps(await asyncio.gather(*calls)))

asyncio.run(main())
"""


@dataclass(frozen=True)
class Called:
    """What one call of the SDK came to; `error` is the name of what it raised."""

    text: str
    stop: str
    error: str


def sdk_folder() -> Path:
    """Where the SDK and what it needs are, downloaded on first use."""
    if not CACHE.exists():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
            fresh = Path(folder) / "packages"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target"]
            subprocess.run([*command, str(fresh), PACKAGE], check=True)
            # Moved as a whole, so that two test processes cannot see each other's half.
            with suppress(OSError):
                fresh.rename(CACHE)
    return CACHE


async def call_with_sdk(url: str, count: int, *, retries: int = 0) -> list[Called]:
    """So many calls at once, every second one streamed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _SCRIPT, url, str(count), str(retries)),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(sdk_folder())},
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await process.communicate()
    assert process.returncode == 0
    return [Called(**each) for each in json.loads(told)]
