"""The flags that every verb about the gateway takes, and the configuration and gateway they name.

Rules: (1) the same flag means the same on every verb; (2) a flag that is not set is left to the
environment and the files.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from jackline.cli.terminal import say
from jackline.config import Config, ServicePlace, load, place_of_service
from jackline.outside_names import printable
from jackline.programs import find_program
from jackline.state_dir import RunningGateway, StateDir


def gateway_flags(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--port`, `--upstream`, `--state` and `--config`; the command gets them as `flags`."""

    @functools.wraps(command)
    def collect(
        port: int | None, upstream: str | None, state: str | None, config: str | None, **rest: Any
    ) -> int:
        flags = {"port": port, "upstream": upstream, "state": state, "config": config}
        return command(flags=flags, **rest)

    for option in (
        click.option("--config", type=click.Path(), help="Use only this jackline.toml."),
        click.option("--state", type=click.Path(), help="The folder for journal and state."),
        click.option("--upstream", help="The URL that calls are sent to."),
        click.option("--port", type=click.IntRange(0, 65535), help="The port (8766)."),
    ):
        collect = option(collect)
    return collect


def configured(
    flags: Mapping[str, object], *, with_secrets: bool = True, in_dollars: bool = False
) -> Config:
    """The configuration under these flags; `in_dollars`: with a limit in dollars beside it."""
    return load(
        flags=flags,
        environ=os.environ,
        cwd=Path.cwd(),
        with_secrets=with_secrets,
        in_dollars=in_dollars,
    )


def show_warnings(config: Config) -> None:
    """Print the warnings of the configuration, such as what a project's file may not set."""
    for warning in config.warnings:
        say(f"warning: {printable(warning)}", err=True)


def service_place(flags: Mapping[str, object]) -> ServicePlace:
    """Where the service is under these flags; faults of the configuration are in it."""
    return place_of_service(flags=flags, environ=os.environ, cwd=Path.cwd())


def warn_of_faults(place: ServicePlace) -> None:
    """Warn of faults in a configuration that the current command does not need."""
    if place.problem is not None:
        say(f"warning: {place.problem}", err=True)


def find_gateway(flags: Mapping[str, object], place: ServicePlace) -> RunningGateway | None:
    """The gateway that these flags mean: with --port the one at that port, and no other."""
    from jackline.assembly.gateway_process import find, find_at  # noqa: PLC0415 -- loads more

    if flags.get("port"):
        return find_at(place.listen)
    return find(StateDir(place.state_dir), place.listen)


def running_gateway(flags: Mapping[str, object]) -> RunningGateway:
    """The gateway that these flags mean; UnreachableError if there is none."""
    from jackline.assembly.gateway_process import not_running  # noqa: PLC0415 -- loads more

    place = service_place(flags)
    running = find_gateway(flags, place)
    if running is None:
        port = place.listen.port if flags.get("port") else None
        raise place.problem or not_running(StateDir(place.state_dir), port)
    warn_of_faults(place)
    return running


def print_next_steps(url: str) -> None:
    """Print what to do with a gateway that runs."""
    click.echo(f"next:  ANTHROPIC_BASE_URL={url} claude      (or: jackline claude)", err=True)
    click.echo("       jackline status shows its status; jackline down stops it", err=True)
    if find_program("jackline") is None and sys.prefix != sys.base_prefix:
        environment, folder = Path(sys.prefix), Path.cwd()
        if environment.is_relative_to(folder):
            environment = environment.relative_to(folder)
        activation = f". {shlex.quote(str(environment / 'bin' / 'activate'))}"
        if sys.platform == "win32":
            activation = str(environment / "Scripts" / "activate")
        click.echo(f"       (in a new shell first: {activation})", err=True)
