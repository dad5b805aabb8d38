"""`jackline up` and `down`: start the gateway here, in the background or at login, and stop it.

Rules: (1) a second `up` says that one runs, and succeeds; (2) `down` stops only the gateway of this
state folder, by a request; one that cannot prove to be this user's is ended by its process if that
is a gateway of this user; faults of the configuration do not matter; (3) a login service (systemd,
launchd, Windows task) is decided by pure functions and shown before it is installed; only files of
this user are touched, and `--uninstall` undoes all of it.
Not here: running it in this process (foreground.py), the steps themselves (system_steps.py).
"""

from __future__ import annotations

import os
import plistlib
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import click

from jackline.assembly import RunningGateway, StateDir
from jackline.assembly.gateway_process import (
    end_process,
    find,
    find_lasting,
    order,
    start_in_background,
    wait_until_gone,
)
from jackline.cli.gateway_flags import (
    as_arguments,
    configured,
    gateway_flags,
    service_place,
    show_warnings,
    warn_of_faults,
)
from jackline.cli.gateway_hints import print_next_steps, warn_if_different
from jackline.cli.system_steps import Remove, Run, Step, Write, apply_steps, unit_word
from jackline.errors import UnreachableError, UntrustedGatewayError, UsageError
from jackline.programs import find_program, own_command

UNIT = "jackline.service"
LABEL = "jackline.gateway"
TASK = "Jackline"
DESCRIPTION = "Jackline gateway: keeps AI agents working through rate limits and outages"
# Thousands of waiting clients need two sockets each.
_OPEN_FILES = 65_536
# A faulty configuration (exit code 2) does not get better by starting again.
_USAGE_EXIT = 2


@dataclass(frozen=True, slots=True)
class LoginService:
    """What installing and uninstalling do on one kind of machine."""

    kind: str
    install: tuple[Step, ...]
    uninstall: tuple[Step, ...]


def program(arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """The command that starts this very Jackline as a gateway in the foreground."""
    return tuple(own_command("up", *arguments))


def login_service(
    command: Sequence[str],
    *,
    platform: str = sys.platform,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> LoginService:
    """The service for this machine, not yet installed; UsageError where there is no such thing."""
    home = home or Path.home()
    environ = os.environ if environ is None else environ
    if platform == "darwin":
        return launchd(command, home, os.getuid())
    if platform == "win32":
        local = environ.get("LOCALAPPDATA") or str(home / "AppData" / "Local")
        user = environ.get("USERNAME", "")
        domain = environ.get("USERDOMAIN", "")
        return scheduled_task(command, Path(local), f"{domain}\\{user}" if domain else user)
    if not has_systemd():
        raise UsageError(
            "there is no systemd here that could start the gateway at login",
            next="run `crontab -e` and add (to undo it: remove) the line:"
            f" @reboot {shlex.join([*command, '-d'])}",
        )
    configured = environ.get("XDG_CONFIG_HOME")
    return systemd(command, Path(configured) if configured else home / ".config")


def has_systemd() -> bool:
    """Whether this machine was started by systemd, and has the command to speak with it."""
    return Path("/run/systemd/system").is_dir() and find_program("systemctl") is not None


def systemd(command: Sequence[str], config_folder: Path) -> LoginService:
    """A user unit: `systemctl --user` knows it as jackline."""
    path = config_folder / "systemd" / "user" / UNIT
    reload = Run(("systemctl", "--user", "daemon-reload"))
    return LoginService(
        "systemd",
        install=(
            Write(path, unit_text(command).encode()),
            reload,
            Run(("systemctl", "--user", "enable", "--now", UNIT)),
        ),
        uninstall=(
            Run(("systemctl", "--user", "disable", "--now", UNIT), may_fail=True),
            Remove(path),
            reload,
        ),
    )


def unit_text(command: Sequence[str]) -> str:
    """The unit's file."""
    return f"""\
[Unit]
Description={DESCRIPTION}

[Service]
ExecStart={" ".join(unit_word(word) for word in command)}
WorkingDirectory=%h
Restart=on-failure
RestartSec=2
RestartPreventExitStatus={_USAGE_EXIT}
LimitNOFILE={_OPEN_FILES}

[Install]
WantedBy=default.target
"""


def launchd(command: Sequence[str], home: Path, user_id: int) -> LoginService:
    """An agent of the user's graphical session."""
    path = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    leave = Run(("launchctl", "bootout", f"gui/{user_id}/{LABEL}"), may_fail=True)
    return LoginService(
        "launchd",
        install=(
            Write(path, plist(command, home)),
            leave,
            Run(("launchctl", "bootstrap", f"gui/{user_id}", str(path))),
        ),
        uninstall=(leave, Remove(path)),
    )


def plist(command: Sequence[str], home: Path) -> bytes:
    """The agent's property list."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(command),
            "WorkingDirectory": str(home),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 10,
            "SoftResourceLimits": {"NumberOfFiles": _OPEN_FILES},
            "StandardErrorPath": str(home / "Library" / "Logs" / "jackline.log"),
        },
        sort_keys=False,
    )


def scheduled_task(command: Sequence[str], local_folder: Path, user: str) -> LoginService:
    """A task of this user, run at this user's login.

    The plain options of schtasks would need an administrator, end the task after three days and
    never start it on battery; only a definition in XML can say otherwise.
    """
    path = local_folder / "jackline" / "login-task.xml"
    return LoginService(
        "schtasks",
        install=(
            Write(path, task_xml(command, user).encode("utf-16")),
            Run(("schtasks", "/Create", "/TN", TASK, "/XML", str(path), "/F")),
            Run(("schtasks", "/Run", "/TN", TASK)),
        ),
        uninstall=(
            Run(("schtasks", "/End", "/TN", TASK), may_fail=True),
            Run(("schtasks", "/Delete", "/TN", TASK, "/F"), may_fail=True),
            Remove(path),
        ),
    )


def task_xml(command: Sequence[str], user: str) -> str:
    """The task's definition."""
    arguments = subprocess.list2cmdline(list(command[1:]))
    return f"""\
<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo><Description>{escape(DESCRIPTION)}</Description></RegistrationInfo>
  <Triggers>
    <LogonTrigger><Enabled>true</Enabled><UserId>{escape(user)}</UserId></LogonTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
      <UserId>{escape(user)}</UserId>
      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure><Interval>PT1M</Interval><Count>10</Count></RestartOnFailure>
  </Settings>
  <Actions Context="Author">
    <Exec><Command>{escape(command[0])}</Command><Arguments>{escape(arguments)}</Arguments></Exec>
  </Actions>
</Task>
"""


@click.command()
@gateway_flags
@click.option("--afk", is_flag=True, help="Hold calls until any quota reset, however far away.")
@click.option(
    "--read-only",
    is_flag=True,
    help="Take no orders from the page in the browser, nor from models.",
)
@click.option("-d", "--detach", is_flag=True, help="Run in the background; end it with down.")
@click.option("--install", is_flag=True, help="Start it at every login.")
@click.option("--uninstall", is_flag=True, help="Do not start it at login any more.")
@click.option("--dry-run", is_flag=True, help="With --install: only show what would be done.")
def up(  # noqa: PLR0913, PLR0917 -- one per flag
    port: int | None,
    upstream: str | None,
    state: str | None,
    config: str | None,
    afk: bool,
    read_only: bool,
    detach: bool,
    install: bool,
    uninstall: bool,
    dry_run: bool,
) -> int:
    """Run the gateway that clients reach through ANTHROPIC_BASE_URL.

    Without any configuration it passes calls and your own credentials on to api.anthropic.com,
    and stores neither.

    \b
    Examples:
      jackline up                       in the foreground, log on stderr
      jackline up -d                    in the background
      jackline up --upstream http://127.0.0.1:18080 --port 9000
      jackline up --install             at every login

    Exit codes: 0 stopped in good order, or one runs already; 1 failed; 2 usage; 130 Ctrl-C twice.
    """
    flags = {"port": port, "upstream": upstream, "state": state, "config": config, "afk": afk}
    flags["read_only"] = read_only
    given = {
        name: value for name, value in flags.items() if value is not None and value is not False
    }
    # A service runs in another folder, so what was meant from here is written out.
    absolute = {
        name: str(Path(str(value)).absolute()) if name in ("state", "config") else value
        for name, value in given.items()
    }
    arguments = as_arguments(absolute)
    if install or uninstall:
        service = login_service(program(arguments))
        steps = service.install if install else service.uninstall
        apply_steps(steps, lambda line: click.echo(line, err=True), dry_run=dry_run)
        return 0
    settings = configured(given)
    folder = StateDir(settings.state_dir)
    running = find_lasting(folder, settings.gateway.listen)
    if running is not None:
        click.echo(f"a gateway runs already at {running.url} (process {running.pid})", err=True)
        warn_if_different(running, settings, given)
        return 0
    if detach:
        show_warnings(settings)  # in the foreground they stand in the log on stderr
        running = start_in_background(folder, settings.gateway.listen, arguments)
        click.echo(f"{running.url}  process {running.pid}, log {folder.log}")
        print_next_steps(running.url)
        return 0
    from jackline.cli.foreground import serve  # noqa: PLC0415 -- loads the whole house

    return serve(settings, lambda: configured(given))


@click.command()
@gateway_flags
def down(port: int | None, upstream: str | None, state: str | None, config: str | None) -> int:
    """End the gateway; running calls may finish first.

    Exit codes: 0 it has ended, or none ran; 5 it does not answer.
    """
    flags = {"port": port, "upstream": upstream, "state": state, "config": config}
    place = service_place(flags)
    folder = StateDir(place.state_dir)
    try:
        running = find(folder, place.listen)
    except UntrustedGatewayError:
        # What it says of itself is not believed: only its word in the folder names its process.
        running = folder.running()
        if running is None or not end_process(running):
            raise
        return _seen_off(folder, running)
    if running is None and place.problem is not None:
        raise place.problem  # it may say where one runs
    if running is None:
        click.echo("no gateway runs", err=True)
        return 0
    warn_of_faults(place)
    order(running, "stop")
    return _seen_off(folder, running)


def _seen_off(folder: StateDir, running: RunningGateway) -> int:
    click.echo(f"{running.url} is being stopped", err=True)
    if not wait_until_gone(folder, running):
        raise UnreachableError(
            f"process {running.pid} has not ended yet",
            next="its calls may still run; look again with: jackline status",
        )
    return 0
