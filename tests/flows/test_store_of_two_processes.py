"""Another process that opens and closes the store takes nothing from the one that works in it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from jackline import event_loop
from jackline.flows.records import RunRecord
from jackline.flows.store import open_run_store, run_store_url

LOOKING = (
    "import asyncio, sys\n"
    "from jackline.flows.store import open_run_store\n"
    "async def main():\n"
    "    engine = open_run_store(sys.argv[1])\n"
    "    await engine.request_stop('aaaaaaaaaa', 'stop')\n"
    "    await engine.close()\n"
    "asyncio.run(main())\n"
)


def test_what_the_other_wrote_is_seen_and_what_is_written_after_it_left_is_kept(
    tmp_path: Path,
) -> None:
    store = tmp_path / "flows.db"

    async def main() -> None:
        engine = open_run_store(run_store_url(store.parent))
        run = RunRecord("aaaaaaaaaa", "flow", "", b"{}")
        claim = await engine.create(run, owner="me", lease=30)
        assert await engine.stop_request("aaaaaaaaaa") == ""
        for number in range(2):
            # SQLite deletes the log of a file that nobody else has open, by its locks.
            url = run_store_url(store.parent)
            other = await asyncio.create_subprocess_exec(sys.executable, "-c", LOOKING, url)
            assert await other.wait() == 0
            assert await engine.stop_request("aaaaaaaaaa") == "stop"
            assert store.with_name("flows.db-wal").exists()
            await engine.note("aaaaaaaaaa", float(number), "mine", "", {})
        await engine.renew(claim, lease=30)
        fresh = open_run_store(run_store_url(store.parent))
        assert [note.at for note in await fresh.notes("aaaaaaaaaa")] == [0.0, 1.0]
        await fresh.close()
        await engine.close()

    event_loop.run(main())
