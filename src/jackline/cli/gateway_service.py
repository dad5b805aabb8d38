"""`jackline up` and `down`: start the gateway here, in the background or at login, and stop it.

Rules: (1) a second `up` reports the gateway that runs, and succeeds; it warns where that gateway
differs from its own flags and variables (not files: the gateway reads changed files by itself); (2)
`down` stops only the gateway of this state folder, by a request; one that cannot prove to be this
user's is stopped by its process if that is a gateway of this user; faults of the configuration do
not matter; (3) a login service (systemd, launchd, Windows task) is decided by pure functions and
shown before it is installed; only files of this user are touched, and `--uninstall` undoes it.
Running it in this process: foreground.py. The steps: system_steps.py.
"""

from __future__ import annotations

import os
import plistlib
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import click

from jackline.assembly import RunningGateway, StateDir
from jackline.assembly.gateway_process import (
    end_process,
    find,
    find_lasting,
    order,
    start_in_background,
    status_of,
    wait_until_gone,
)
from jackline.cli.gateway_flags import (
    configured,
    gateway_flags,
    print_next_steps,
    service_place,
    show_warnings,
    warn_of_faults,
)
from jackline.cli.system_steps import Installation, Remove, Run, Write, apply_steps, unit_word
from jackline.cli.terminal import say
from jackline.config import Config
from jackline.errors import UnreachableError, UntrustedGatewayError, UsageError
from jackline.private_files import own_number
from jackline.programs import find_program, own_command

_UNIT = "jackline.service"
_LABEL = "jackline.gateway"
_TASK = "Jackline"
_DESCRIPTION = "Jackline gateway: keeps AI agents working through rate limits and outages"
# Thousands of waiting clients need two sockets each.
_OPEN_FILES = 65_536
# What only the start of a gateway decides, and cannot be seen from outside.
_START_FLAGS = {"afk": "--afk", "read_only": "--read-only", "config": "--config"}


def login_service(
    arguments: Sequence[str],
    *,
    platform: str = sys.platform,
    home: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Installation:
    """The service that runs `up` with these arguments at every login of this user.

    UsageError where this system has no such service.
    """
    command = own_command("up", *arguments)
    home = home or Path.home()
    if platform == "darwin":
        return launchd(command, home, own_number())
    if platform == "win32":
        local = environ.get("LOCALAPPDATA") or str(home / "AppData" / "Local")
        user = environ.get("USERNAME", "")
        domain = environ.get("USERDOMAIN", "")
        return scheduled_task(command, Path(local), f"{domain}\\{user}" if domain else user)
    if not has_systemd():
        raise UsageError(
            "there is no systemd here that could start the gateway at login",
            hint="run `crontab -e` and add (to undo it: remove) the line:"
            f" @reboot {shlex.join([*command, '-d'])}",
        )
    configured = environ.get("XDG_CONFIG_HOME")
    return systemd(command, Path(configured) if configured else home / ".config")


def has_systemd() -> bool:
    """Whether this machine was started by systemd, and has its command."""
    return Path("/run/systemd/system").is_dir() and find_program("systemctl") is not None


def systemd(command: Sequence[str], config_folder: Path) -> Installation:
    """A user unit: `systemctl --user` knows it as jackline."""
    path = config_folder / "systemd" / "user" / _UNIT
    # A faulty configuration (exit code 2) does not get better by a restart.
    unit = f"""\
[Unit]
Description={_DESCRIPTION}

[Service]
ExecStart={" ".join(unit_word(word) for word in command)}
WorkingDirectory=%h
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=2
LimitNOFILE={_OPEN_FILES}

[Install]
WantedBy=default.target
"""
    reload = Run(("systemctl", "--user", "daemon-reload"))
    return Installation(
        install=(
            Write(path, unit.encode()),
            reload,
            Run(("systemctl", "--user", "enable", "--now", _UNIT)),
        ),
        uninstall=(
            Run(("systemctl", "--user", "disable", "--now", _UNIT), may_fail=True),
            Remove(path),
            Run(reload.command, may_fail=True),
        ),
    )


def launchd(command: Sequence[str], home: Path, user_id: int) -> Installation:
    """An agent of the user's graphical session."""
    path = home / "Library" / "LaunchAgents" / f"{_LABEL}.plist"
    plist = plistlib.dumps(
        {
            "Label": _LABEL,
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
    unload = Run(("launchctl", "bootout", f"gui/{user_id}/{_LABEL}"), may_fail=True)
    load = Run(("launchctl", "bootstrap", f"gui/{user_id}", str(path)))
    return Installation((Write(path, plist), unload, load), (unload, Remove(path)))


def scheduled_task(command: Sequence[str], local_folder: Path, user: str) -> Installation:
    """A task of this user, run at this user's login.

    Defined in XML: the plain options of schtasks need an administrator, end the task after three
    days and never start it on battery.
    """
    path = local_folder / "jackline" / "login-task.xml"
    arguments = subprocess.list2cmdline(list(command[1:]))
    task = f"""\
<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo><Description>{escape(_DESCRIPTION)}</Description></RegistrationInfo>
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
    return Installation(
        install=(
            Write(path, task.encode("utf-16")),
            Run(("schtasks", "/Create", "/TN", _TASK, "/XML", str(path), "/F")),
            Run(("schtasks", "/Run", "/TN", _TASK)),
        ),
        uninstall=(
            Run(("schtasks", "/End", "/TN", _TASK), may_fail=True),
            Run(("schtasks", "/Delete", "/TN", _TASK, "/F"), may_fail=True),
            Remove(path),
        ),
    )


def warn_if_different(
    running: RunningGateway, config: Config, flags: Mapping[str, object] | None = None
) -> None:
    """Warn when a running gateway sends elsewhere than wanted, or started without these flags."""
    found = []
    wanted = config.gateway.upstream.url
    try:
        sends_to = status_of(running).get("upstream")
    except UnreachableError:
        sends_to = None  # it has just stopped: the next request to it will fail
    is_wanted_here = config.origins.get("upstream.url") in ("flag --upstream", "JACKLINE_UPSTREAM")
    if is_wanted_here and sends_to is not None and sends_to != wanted:
        found.append(f"it sends to {sends_to}, not to {wanted}")
    without_effect = [flag for name, flag in _START_FLAGS.items() if (flags or {}).get(name)]
    if without_effect:
        found.append(f"{' and '.join(without_effect)} cannot change a gateway that runs")
    if found:
        say(f"warning: {'; '.join(found)}", err=True)
        say("hint:  jackline down, then the same command again", err=True)


@click.command()
@gateway_flags
@click.option("--afk", is_flag=True, help="Hold calls until any quota reset, however far away.")
@click.option(
    "--read-only",
    is_flag=True,
    help="Accept no orders from the page in the browser or from models.",
)
@click.option("-d", "--detach", is_flag=True, help="Run in the background; stop it with down.")
@click.option("--install", is_flag=True, help="Start it at every login.")
@click.option("--uninstall", is_flag=True, help="Do not start it at login any more.")
@click.option("--dry-run", is_flag=True, help="With --install: only show what would be done.")
def up(
    flags: Mapping[str, object],
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

    Exit codes: 0 stopped, or one runs already; 1 failed; 2 usage; 130 Ctrl-C twice.
    """
    all_flags = {**flags, "afk": afk or None, "read_only": read_only or None}
    used = {name: value for name, value in all_flags.items() if value is not None}
    arguments: list[str] = []
    for name, value in used.items():
        arguments.append(f"--{name.replace('_', '-')}")
        if name in ("state", "config"):
            # A service runs in another folder, so relative paths are written out.
            arguments.append(str(Path(str(value)).absolute()))
        elif value is not True:
            arguments.append(str(value))
    if install or uninstall:
        service = login_service(arguments)
        steps = service.install if install else service.uninstall
        apply_steps(steps, lambda line: click.echo(line, err=True), dry_run=dry_run)
        return 0
    settings = configured(used)
    folder = StateDir(settings.state_dir)
    running = find_lasting(folder, settings.gateway.listen)
    if running is not None:
        say(f"a gateway runs already at {running.url} (process {running.pid})", err=True)
        warn_if_different(running, settings, used)
        return 0
    if detach:
        show_warnings(settings)  # in the foreground they are in the log on stderr
        running = start_in_background(folder, settings.gateway.listen, arguments)
        click.echo(f"{running.url}  process {running.pid}, log {folder.log}")
        print_next_steps(running.url)
        return 0
    from jackline.cli.foreground import serve  # noqa: PLC0415 -- loads the whole service

    return serve(settings, lambda: configured(used))


@click.command()
@gateway_flags
def down(flags: Mapping[str, object]) -> int:
    """Stop the gateway after running calls finish.

    Exit codes: 0 it has stopped, or none ran; 5 it does not answer.
    """
    place = service_place(flags)
    folder = StateDir(place.state_dir)
    here = folder.running()
    port = flags.get("port")
    if port and here is not None and urlsplit(here.url).port != port:
        say(f"no gateway runs at port {port}; the one at {here.url} goes on", err=True)
        return 0
    try:
        running = find(folder, place.listen)
    except UntrustedGatewayError:
        # Its own answers are not believed: only the record in the state folder names its process.
        running = folder.running()
        if running is None or not end_process(running):
            raise
    else:
        if running is None and place.problem is not None:
            raise place.problem  # without the fault, a gateway might be found
        if running is None:
            say("no gateway runs", err=True)
            return 0
        warn_of_faults(place)
        order(running, "stop")
    say(f"{running.url} is being stopped", err=True)
    if not wait_until_gone(folder, running):
        raise UnreachableError(
            f"process {running.pid} has not stopped yet",
            hint="its calls may still run; check again with: jackline status",
        )
    return 0
