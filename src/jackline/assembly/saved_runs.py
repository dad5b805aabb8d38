"""Open the store of runs in the state folder, for commands that start no agent.

Rules: (1) neither a gateway nor a runner is loaded: listing runs is quick; (2) what is opened is
closed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jackline.config import Config
from jackline.errors import JournalError
from jackline.flows.host import FlowHost
from jackline.flows.store import open_run_store, run_store_url
from jackline.flows.store.run_store import RunStore
from jackline.state_dir import StateDir


def open_state_store(config: Config, *, patience: float = 0.0) -> RunStore:
    """The store of runs in the state folder; who runs some has patience with a lock."""
    state = StateDir(config.state_dir)
    try:
        state.make()
    except OSError as error:
        raise JournalError(
            f"runs cannot be saved: {state.folder} cannot be made ({error.strerror})",
            hint="name another folder with --state or JACKLINE_STATE",
        ) from error
    return open_run_store(run_store_url(state.folder), patience=patience)


@asynccontextmanager
async def open_quiet_host(config: Config) -> AsyncIterator[FlowHost]:
    """A host for orders that start no agent (cancel, clean up): it needs no gateway."""
    engine = open_state_store(config)
    try:
        yield FlowHost(
            engine,
            lambda _run_id: {},
            settings=config.runs,
            allow=lambda: config.tools.batch.allow,
        )
    finally:
        await engine.close()
