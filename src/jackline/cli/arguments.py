"""Parse times on the command line, and complete names of runs, upstreams and drills in the shell.

Rules: (1) a time without a zone is in the host's zone, and an unreadable one says how to write it;
(2) completion never fails and prints no message: where nothing can be read, nothing is offered; (3)
completion writes nothing and looks up no secret; (4) its imports are late, as in main.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import click
from click.shell_completion import CompletionItem

from jackline.clock import SystemClock
from jackline.errors import BadArgumentError, JacklineError


def parse_now_option(option: str | None, clock: SystemClock) -> datetime:
    """The time in `--now`, or the clock's."""
    if option is None:
        return clock.now()
    try:
        moment = datetime.fromisoformat(option)
    except ValueError as error:
        raise BadArgumentError(
            f"--now {option!r} is not an ISO 8601 time",
            hint="write it like 2026-11-15T09:00:00+02:00",
        ) from error
    return clock.in_host_zone(moment) if moment.tzinfo is None else moment


def parse_age(words: str, option: str) -> timedelta:
    """How long ago: 90m, 24h, 7d or 2w."""
    age = re.fullmatch(r"(\d{1,5})([mhdw])", words.strip().lower())
    if age is None:
        raise BadArgumentError(
            f"{option} {words!r} is not an age", hint="write it like 24h, 7d or 2w"
        )
    return timedelta(**{_UNITS[age[2]]: int(age[1])})


_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MOST = 50
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _completion(
    look: Callable[[click.Context], Iterable[tuple[str, str]]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Complete with the names that this finds, each with its meaning."""

    def complete(
        ctx: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            found = list(look(ctx))
        except (JacklineError, OSError):
            return []  # the command itself reports a broken file
        return [CompletionItem(n, help=about) for n, about in found if n.startswith(incomplete)]

    return complete


@_completion
def run_ids(ctx: click.Context) -> Iterable[tuple[str, str]]:
    """The newest runs, with their flow and state."""
    from jackline import event_loop  # noqa: PLC0415 -- rule 4
    from jackline.cli.gateway_flags import configured  # noqa: PLC0415
    from jackline.flows.store import (  # noqa: PLC0415
        open_run_store,
        run_store_exists,
        run_store_url,
    )

    folder = configured({"state": ctx.params.get("state")}, with_secrets=False).state_dir
    url = run_store_url(folder)
    if not run_store_exists(url):
        return []

    async def read() -> list[tuple[str, str]]:
        engine = open_run_store(url)
        try:
            runs = await engine.runs(limit=_MOST)
        finally:
            await engine.close()
        # A name that a shell would read as more than one word is not offered.
        return [
            (run.run_id, f"{run.flow}, {run.state.value}")
            for run in runs
            if _PLAIN.fullmatch(run.run_id) and run.flow.isprintable()
        ]

    return event_loop.run(read())


@_completion
def upstream_names(ctx: click.Context) -> Iterable[tuple[str, str]]:
    """The upstreams of the configuration, with their addresses."""
    from jackline.cli.gateway_flags import configured  # noqa: PLC0415 -- rule 4

    config = configured({"config": ctx.params.get("config")}, with_secrets=False)
    return [(each.name, each.url) for each in config.gateway.upstreams]


@_completion
def drill_names(_ctx: click.Context) -> Iterable[tuple[str, str]]:
    """The drills."""
    from jackline.drills.catalogue import all_drills  # noqa: PLC0415 -- rule 4

    return [(each.name, "") for each in all_drills()]
