"""Offer live names to the shell's completion: runs, upstreams, drills.

Laws: (1) completion never fails and never says anything: where nothing can be read, nothing is
offered; (2) nothing is written, and no secret is looked up; (3) what it needs is loaded only then.
Not here: the shell's part (click's own; docs/cli.md says how to switch it on).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from jackline.errors import JacklineError

_MOST = 50
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def run_ids(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The newest runs, with their flow and state."""

    def look() -> Iterable[tuple[str, str]]:
        from jackline import event_loop  # noqa: PLC0415 -- see law 3
        from jackline.assembly import StateDir  # noqa: PLC0415
        from jackline.cli.gateway_flags import configured  # noqa: PLC0415
        from jackline.flows.local import LocalEngine  # noqa: PLC0415

        folder = configured({"state": ctx.params.get("state")}, with_secrets=False).state_dir
        store = StateDir(folder).flows
        if not store.is_file():
            return []

        async def read() -> list[tuple[str, str]]:
            engine = LocalEngine(store)
            try:
                runs = await engine.runs(limit=_MOST)
            finally:
                await engine.close()
            # A name that a shell would read as more than a word is never put on its line.
            return [
                (run.run_id, f"{run.flow}, {run.state.value}")
                for run in runs
                if _PLAIN.fullmatch(run.run_id) and run.flow.isprintable()
            ]

        return event_loop.run(read())

    return _offered(look, incomplete)


def upstream_names(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The upstreams of the configuration, with their addresses."""

    def look() -> Iterable[tuple[str, str]]:
        from jackline.cli.gateway_flags import configured  # noqa: PLC0415 -- see law 3

        config = configured({"config": ctx.params.get("config")}, with_secrets=False)
        return [(each.name, each.url) for each in config.gateway.upstreams]

    return _offered(look, incomplete)


def drill_names(
    _ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The drills."""

    def look() -> Iterable[tuple[str, str]]:
        from jackline.drills.catalogue import all_drills  # noqa: PLC0415 -- see law 3

        return [(each.name, "") for each in all_drills()]

    return _offered(look, incomplete)


def _offered(
    look: Callable[[], Iterable[tuple[str, str]]], incomplete: str
) -> list[CompletionItem]:
    try:
        found = list(look())
    except (JacklineError, OSError):
        return []  # a broken file is told by the command itself, not while a word is typed
    return [CompletionItem(n, help=about) for n, about in found if n.startswith(incomplete)]
