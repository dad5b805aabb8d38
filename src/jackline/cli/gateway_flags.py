"""The flags that every verb about the gateway takes, and the configuration they lead to.

Rules: (1) the same flag means the same on every verb; (2) a flag that is not set is left to the
environment and the files.
Not here: reading those (config/).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click

from jackline.config import Config, ServicePlace, load, place_of_service
from jackline.outside_names import printable

F = TypeVar("F", bound=Callable[..., object])


def gateway_flags(command: F) -> F:
    """Give a command `--port`, `--upstream`, `--state` and `--config`."""
    for option in (
        click.option("--config", type=click.Path(), help="A jackline.toml to use alone."),
        click.option("--state", type=click.Path(), help="The folder for journal and state."),
        click.option("--upstream", help="The URL that calls are sent to."),
        click.option("--port", type=click.IntRange(0, 65535), help="The port (8766)."),
    ):
        command = option(command)
    return command


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
    """Show what the configuration warns of, such as what a project's file may not set."""
    for warning in config.warnings:
        click.echo(f"warning: {printable(warning)}", err=True)


def service_place(flags: Mapping[str, object]) -> ServicePlace:
    """Where the service lives under these flags; faults of the configuration come with it."""
    return place_of_service(flags=flags, environ=os.environ, cwd=Path.cwd())


def warn_of_faults(place: ServicePlace) -> None:
    """Say what is wrong with a configuration that was not needed for what is done now."""
    if place.problem is not None:
        click.echo(f"warning: {place.problem}", err=True)


def as_arguments(flags: Mapping[str, object]) -> list[str]:
    """The flags as another `jackline` would be given them."""
    given: list[str] = []
    for name, value in flags.items():
        if value is True:
            given.append(f"--{name.replace('_', '-')}")
        elif value is not None and value is not False:
            given += [f"--{name.replace('_', '-')}", str(value)]
    return given
