"""`jackline env`: print the lines that point a shell's clients to the gateway.

Rules: (1) the shell it is made for can run the output as it is, whatever the values hold; (2)
nothing is started and nothing is changed.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import PurePath, PureWindowsPath

import click

from jackline.agents.claude_code.environment import CUSTOM_HEADERS, TOKEN_HEADER, client_environment
from jackline.assembly.gateway_process import find, hello
from jackline.cli.gateway_flags import configured
from jackline.errors import BadArgumentError, UnreachableError
from jackline.gateway.settings import ListenSettings
from jackline.gateway_proof import UnprovenError
from jackline.local_address import local_url
from jackline.state_dir import StateDir

SHELLS = ("bash", "zsh", "fish", "powershell")
_APPLY = {
    "bash": 'eval "$(jackline env)"',
    "zsh": 'eval "$(jackline env)"',
    "fish": "jackline env | source",
    "powershell": "jackline env | Out-String | Invoke-Expression",
}
# PowerShell takes typographic single quotes for plain ones.
_POWERSHELL_QUOTES = "'‘’‚‛"


@click.command()
@click.option("--shell", type=click.Choice(SHELLS), help="Default: the shell you are in.")
@click.option("--afk", is_flag=True, help="Let calls wait until any known quota reset.")
@click.option("--port", type=click.IntRange(0, 65535), help="The gateway's port.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def env(shell: str | None, afk: bool, port: int | None, as_json: bool) -> None:
    """Print the lines that point this shell's clients to the gateway.

    They set the address, and the variables that let Claude Code wait for hours. Variables that you
    have set yourself stay unchanged.

    \b
    Examples:
      eval "$(jackline env)"                              bash, zsh
      jackline env | source                               fish
      jackline env | Out-String | Invoke-Expression       PowerShell

    Exit codes: 0 printed, 2 the configuration or an argument is not valid.
    """
    config = configured({"port": port}, with_secrets=False)
    listen = config.gateway.listen
    is_port_set = config.origins["listen.port"].startswith(("flag", "JACKLINE_"))
    running = find(StateDir(config.state_dir), listen, by_port=False)
    if running is not None and not is_port_set:
        address, answers = running.url, True
    else:
        address = gateway_url(listen)
        try:
            is_there = running is not None and running.url == address
            answers = is_there or hello(address) is not None
        except UnprovenError as error:
            raise UnreachableError(
                f"the program that listens at {address} did not prove to be your gateway ({error}),"
                " so that no client is pointed to it",
                hint="jackline status shows yours; else use another port: jackline up -d --port N",
            ) from error
    variables = client_environment(address, afk=afk, environ=os.environ)
    chosen = shell or guess_shell(os.environ, windows=os.name == "nt")
    if as_json:
        document = {"schema": "jackline.env/1", "shell": chosen, "variables": variables}
        click.echo(json.dumps(document, indent=2))
        return
    for name, value in variables.items():
        click.echo(assignment(chosen, name, value))
    click.echo(f"# to apply:  {_APPLY[chosen]}")
    if not answers and listen.token is None:
        click.echo(f"no gateway answers at {address} yet; next: jackline up -d", err=True)
    if listen.token is not None:
        # Printed lines end in scroll-back and logs; `jackline claude` passes it on unseen.
        click.echo(
            f"this gateway requires its token: add the line `{TOKEN_HEADER}: …` to"
            f" {CUSTOM_HEADERS}, or start clients with `jackline claude` or `jackline exec`",
            err=True,
        )


def gateway_url(listen: ListenSettings) -> str:
    """The address at which a client on this machine finds the gateway."""
    if listen.port == 0:
        raise BadArgumentError(
            "the port is set to 0, any free one, so its number is not known here",
            hint="jackline status shows the address; then: jackline env --port N",
        )
    return local_url(listen.host, listen.port)


def guess_shell(environ: Mapping[str, str], *, windows: bool) -> str:
    """The shell that will read the lines, from what shells leave in the environment."""
    # Windows sets PSModulePath for everyone; elsewhere only PowerShell itself does.
    if environ.get("PSModulePath") and not (windows and environ.get("SHELL")):
        return "powershell"
    path = environ.get("SHELL", "")
    name = (PureWindowsPath(path) if windows else PurePath(path)).name.removesuffix(".exe")
    if name in SHELLS:
        return name
    return "powershell" if windows and not path else "bash"


def assignment(shell: str, name: str, value: str) -> str:
    """The line by which this shell sets and exports a variable."""
    if shell == "fish":
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"set -gx {name} '{escaped}'"
    if shell == "powershell":
        doubled = "".join(2 * mark if mark in _POWERSHELL_QUOTES else mark for mark in value)
        return f"$env:{name} = '{doubled}'"
    return f"export {name}={shlex.quote(value)}"
