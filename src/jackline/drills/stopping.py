"""End a process that a drill has started.

Laws: (1) only one's own process, by its handle; (2) it may end in good order for a few seconds.
Not here: what the processes are (claude_fleet.py, gateway_side.py).
"""

from __future__ import annotations

import asyncio

PATIENCE_S = 5.0


async def stop(process: asyncio.subprocess.Process) -> None:
    """Ask the process to end, and make it."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
