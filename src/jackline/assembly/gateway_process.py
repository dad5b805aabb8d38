"""Find the running gateway, read from it, give it orders, and start one in the background.

Rules: (1) a gateway counts as running only when it answers and is the one that the state folder
names; (2) it has to prove that it is this user's before anything is sent to it, on each
connection, and before clients are pointed to it; (3) one that cannot prove it is reported as
that, and can be ended by its process; (4) orders carry the token from the state folder, which
only this user can read; (5) no proxy is used: the gateway is on this machine.
Not here: running it in the foreground (cli/gateway_service.py), the proof (gateway_proof.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from jackline.agents.task_meter import TaskReading
from jackline.errors import JacklineError, UnreachableError, UntrustedGatewayError, UsageError
from jackline.gateway.settings import ListenSettings
from jackline.gateway_proof import (
    UnprovenError,
    prove,
    whole_answer,
)
from jackline.local_address import authority_of, host_and_port, is_loopback, local_url
from jackline.private_files import installation_key, open_private, own_number
from jackline.programs import own_command
from jackline.state_dir import RunningGateway, StateDir, safe_files

_ASK_SECONDS = 8.0
# Who answers at an address without a record in the folder may be anyone, and silent.
_KNOCK_SECONDS = 1.0
# A machine that is busy with a fleet takes its time; one that fails ends at once and says why.
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_LOOK_EVERY = 0.05
_UNTRUSTED = 401
# What a gateway answers that knows no proofs; with a token of its own, the second.
_UNKNOWN_PATH = (404, _UNTRUSTED)
_NO_KEY = 503
_LARGEST_ANSWER = 256 << 20
_LARGEST_GREETING = 64 * 1024
# Whatever holds the port may be no gateway, and speak no HTTP.
_NO_ANSWER = (OSError, ValueError)
# On Windows alone; elsewhere a session of its own does the same.
_DETACHED = sum(
    getattr(subprocess, name, 0) for name in ("DETACHED_PROCESS", "CREATE_NEW_PROCESS_GROUP")
)


class _RefusalError(Exception):
    """The gateway answered with a status of its own; `body` is its answer."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status
        self.body = body


def find(state: StateDir, listen: ListenSettings, *, by_port: bool = True) -> RunningGateway | None:
    """The gateway of this state folder, if it answers and has proved to be this user's.

    One that could leave no record in its folder is found by its port. UntrustedGatewayError for one
    that seems to be the gateway of this folder, and cannot prove it.
    """
    running, folder = state.running(), str(state.folder.absolute())
    if running is not None:
        host, _ = host_and_port(running.url)
        if not is_loopback(host) and host != listen.host:
            raise UntrustedGatewayError(
                f"the gateway at {running.url} is at an address that is neither of this machine's"
                " loopback nor the configured one",
                hint=f"if you started it there: JACKLINE_LISTEN_HOST={host} jackline status",
            )
        try:
            greeted = hello(running.url, running.token)
        except UnprovenError as error:
            # It may be the gateway of this record, or another program that has its port since.
            if os.name != "nt":
                seems_ours = is_own_gateway(running.pid)
            else:  # processes cannot be looked at there
                greeted = greeting(running.url)
                seems_ours = greeted is not None and greeted.get("state") == folder
            if seems_ours:
                raise _unproven(running.url, error) from error
            greeted = None
        # Another gateway may have the port of one that was killed and left its record behind; one
        # that does not name its process is recognised by the record in its folder.
        if greeted is not None and greeted.get("process") in (None, running.pid):
            return running
    if not by_port or listen.port == 0:
        return None
    return _found_at(local_url(listen.host, listen.port), folder)


def _found_at(url: str, folder: str) -> RunningGateway | None:
    try:
        greeted = hello(url, patience=_KNOCK_SECONDS)
    except UnprovenError as error:
        greeted = greeting(url)
        if greeted is None or greeted.get("state") != folder:
            return None
        raise _unproven(url, error) from error
    if greeted is None or greeted.get("state") != folder:
        return None
    pid = greeted.get("process")
    return RunningGateway(
        pid if isinstance(pid, int) else 0, url, "", str(greeted["jackline"]), 0.0, ""
    )


def find_at(listen: ListenSettings) -> RunningGateway | None:
    """The user's own gateway at exactly this address, whatever its state folder is.

    UntrustedGatewayError for a gateway there that cannot prove to be this user's.
    """
    url = local_url(listen.host, listen.port)
    try:
        greeted = hello(url, patience=_KNOCK_SECONDS)
    except UnprovenError as error:
        if greeting(url) is None:
            return None
        raise _unproven(url, error) from error
    if greeted is None:
        return None
    # It has proved itself, so that the folder that it names is this user's, too.
    running = StateDir(Path(str(greeted["state"]))).running()
    if running is not None and running.pid == greeted.get("process"):
        return running
    pid = greeted.get("process")
    return RunningGateway(
        pid if isinstance(pid, int) else 0, url, "", str(greeted["jackline"]), 0.0, ""
    )


def _unproven(url: str, error: UnprovenError) -> UntrustedGatewayError:
    if error.status in _UNKNOWN_PATH:
        why = "was started by an older version, which cannot prove that it is yours"
        fix = "jackline down, then jackline up -d"
    elif error.status == _NO_KEY:
        why = "cannot prove that it is yours: it has no installation key"
        fix = "its log and `jackline doctor` say why; mend that, then start it again"
        if sys.platform.startswith("linux"):
            fix += " (XDG_STATE_HOME names the folder of the key)"
    else:
        why = f"did not prove that it is yours ({error})"
        fix = (
            "nothing was sent to it; if it is an old one of yours: jackline down, then jackline up"
            " -d; else take another port"
        )
    return UntrustedGatewayError(f"the gateway at {url} {why}", hint=fix)


def find_lasting(state: StateDir, listen: ListenSettings) -> RunningGateway | None:
    """The gateway of this state folder; one that is just being stopped is seen off first."""
    running = find(state, listen)
    if running is not None:
        try:
            greeted = hello(running.url, running.token)
        except UnprovenError:
            greeted = None
        if greeted is None or greeted.get("stopping") is True:
            wait_until_gone(state, running)
            return find(state, listen)
    return running


def hello(url: str, token: str = "", patience: float = _ASK_SECONDS) -> dict[str, object] | None:
    """What the user's own gateway at this address says of itself; None if nobody answers.

    UnprovenError when somebody does who has not proved to be this user's gateway.
    """
    try:
        document = _ask(url, "/", token, patience=patience)
    except UnprovenError:
        raise
    except (*_NO_ANSWER, _RefusalError):
        return None
    return document if "jackline" in document else None


def greeting(url: str) -> dict[str, object] | None:
    """What whoever listens there says of itself, unproved; it gets nothing but the question."""
    try:
        host, port = host_and_port(url)
        until = time.monotonic() + _KNOCK_SECONDS
        with socket.create_connection((host, port), timeout=_KNOCK_SECONDS) as line:
            request = (
                f"GET / HTTP/1.1\r\nhost: {authority_of(host, port)}\r\nconnection: close\r\n\r\n"
            )
            _, body = whole_answer(line, request.encode(), until, _LARGEST_GREETING)
        document = json.loads(body)
    except (*_NO_ANSWER, RecursionError):
        return None
    return document if isinstance(document, dict) and "jackline" in document else None


def status_of(running: RunningGateway) -> dict[str, object]:
    """The status of the gateway."""
    return reading_of(running, "status")


def reading_of(running: RunningGateway, name: str) -> dict[str, object]:
    """The document of this name, such as `status` or `fleet`."""
    try:
        return _ask(running.url, f"/_jackline/{name}", running.token)
    except UnprovenError as error:
        raise _unproven(running.url, error) from error
    except (*_NO_ANSWER, _RefusalError) as error:
        raise UnreachableError(
            f"the gateway at {running.url} does not answer", hint="start it with: jackline up"
        ) from error


def fullest_window(url: str) -> tuple[float, float] | None:
    """The used share of the fullest window that the gateway knows of, and when it refills.

    None when there is none, or the gateway does not report it: then nothing is reserved.
    """
    forecast = _reported(url, "status", "forecast")
    windows = forecast if isinstance(forecast, list) else []
    used = [
        (float(each["used"]), float(each["resets_at"]))
        for each in windows
        if isinstance(each, dict)
    ]
    return max(used, default=None)


def task_readings(state: StateDir, url: str) -> dict[str, TaskReading] | None:
    """What the gateway at this address, of this state folder, has counted for each agent.

    None when it does not say.
    """
    tasks = _reported(url, "tasks", "tasks", _token_of(state, url))
    if not isinstance(tasks, dict):
        return None
    try:
        return {task: TaskReading.from_json(each) for task, each in tasks.items()}
    except ValueError:
        return None  # of another version


def waits(state: StateDir, url: str) -> dict[str, object] | None:
    """What the agents of flows do or wait for at the gateway at this address, of this state folder.

    None when it does not say.
    """
    try:
        return _ask(url, "/_jackline/waits", _token_of(state, url))
    except (*_NO_ANSWER, _RefusalError, JacklineError):
        return None


def _token_of(state: StateDir, url: str) -> str:
    running = state.running()
    return running.token if running is not None and running.url == url else ""


def _reported(url: str, document: str, name: str, token: str = "") -> object:
    """What a document of the gateway has under this name; None if it gives none."""
    try:
        return _ask(url, f"/_jackline/{document}", token).get(name)
    except (*_NO_ANSWER, _RefusalError, JacklineError):
        return None


def order(
    running: RunningGateway, name: str, arguments: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Give an order, such as `stop`, with what it is about; UsageError when it is refused."""
    try:
        body = b"" if arguments is None else json.dumps(arguments).encode()
        return _ask(running.url, f"/_jackline/{name}", running.token, body=body)
    except UnprovenError as error:
        raise _unproven(running.url, error) from error
    except _RefusalError as error:
        if error.status == _UNTRUSTED:
            # Its folder could not be written to, so that its token is known to nobody.
            raise UnreachableError(
                f"the gateway at {running.url} does not know us: its token was not saved",
                hint=f"end its process by hand: {running.pid}",
            ) from error
        try:
            refusal = json.loads(error.body)["error"]
            says, hint = f"the gateway refuses: {refusal['message']}", refusal.get("hint") or ""
        except (ValueError, KeyError, TypeError):  # not our format: its status has to do
            says = f"the gateway refuses with HTTP status {error.status}"
            hint = "it may be of another version: jackline down, then jackline up"
        raise UsageError(says, hint=hint) from error
    except _NO_ANSWER as error:
        raise UnreachableError(
            f"the gateway at {running.url} did not take the order: {error}",
            hint=f"end its process by hand: {running.pid}",
        ) from error


def end_process(running: RunningGateway) -> bool:
    """End a gateway that takes no order, as Ctrl-C would; whether it is one of this user's."""
    if not is_own_gateway(running.pid):
        return False
    os.kill(running.pid, signal.SIGTERM)
    return True


def is_own_gateway(pid: int) -> bool:
    """Whether this is a living `jackline up` of this user; never so on Windows, which hides it."""
    if os.name == "nt" or pid <= 1:
        return False
    folder = Path(f"/proc/{pid}")
    try:
        if Path("/proc/self/cmdline").exists():
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            owner = str(folder.stat().st_uid)
        else:
            listed = subprocess.run(  # noqa: S603 -- a number
                ["/bin/ps", "-o", "uid=,command=", "-p", str(pid)],
                capture_output=True,
                check=False,
                timeout=_ASK_SECONDS,
            )
            text = listed.stdout.decode(errors="replace").strip()
            owner, _, command = text.partition(" ")
            words = command.split()
    except (OSError, subprocess.TimeoutExpired):
        return False
    is_up = "up" in words and any("jackline" in word for word in words)
    return is_up and owner == str(own_number())


def start_in_background(
    state: StateDir, listen: ListenSettings, arguments: Sequence[str]
) -> RunningGateway:
    """Start a gateway that outlives this command, and wait until it answers and proves itself."""
    try:
        with safe_files():
            installation_key()
    except OSError as error:
        raise UnreachableError(
            f"no gateway can be started: the installation key cannot be saved in {error.filename}"
            f" ({error.strerror})",
            hint="make that folder writable, or name another one with XDG_STATE_HOME; a gateway in"
            " the foreground serves without it: jackline up",
        ) from error
    try:
        state.make()
        log = state.open_log()
    except OSError as error:
        raise UnreachableError(
            f"no gateway can be started: {state.folder} cannot be written to ({error.strerror})",
            hint="name another folder with --state or JACKLINE_STATE",
        ) from error
    with log:
        begin = log.tell()
        process = subprocess.Popen(  # noqa: S603 -- ourselves
            own_command("up", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            creationflags=_DETACHED,
            start_new_session=os.name != "nt",
        )
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        running = state.running()
        ours = running if running is not None and running.pid == process.pid else None
        # A connection may be cut off while it has only just begun.
        with contextlib.suppress(UnprovenError):
            if ours is not None and hello(ours.url, ours.token) is not None:
                return ours
        if process.poll() is not None:
            # It may have found another one that was quicker, and perhaps is not ready yet.
            other = find(state, listen, by_port=False)
            if other is not None:
                return other
            if process.returncode != 0:
                break
        time.sleep(_LOOK_EVERY)
    else:
        if process.poll() is None:
            process.terminate()
    why, what_to_do = _last_words(state.log, begin)
    raise UnreachableError(
        f"the gateway did not start: {why}",
        hint=what_to_do
        or f"run it in the foreground to see more: jackline up; its log is {state.log}",
    )


def wait_until_gone(state: StateDir, running: RunningGateway) -> bool:
    """Whether the gateway has ended, and let go of its folder, within its time."""
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline:
        record = state.running()
        if record is None or record.pid != running.pid or not _is_alive(running.pid):
            return True
        time.sleep(_LOOK_EVERY)
    return False


def was_killed(state: StateDir, url: str) -> bool:
    """Whether the gateway at this address has gone without removing its record from the folder."""
    record = state.running()
    if record is None or record.url != url:
        return False
    if sys.platform != "win32":
        # One that we have started ourselves counts as alive until we have seen its end.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(record.pid, os.WNOHANG)
    return not _is_alive(record.pid)


def _is_alive(pid: int) -> bool:
    if os.name == "nt":
        return True  # asking there would end it; its record in the folder has to do
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's: it lives
    return True


def _last_words(log: Path, begin: int) -> tuple[str, str]:
    """Why it ended, and its hint, if it printed one."""
    with os.fdopen(open_private(log), "rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    hints = [line.removeprefix("hint:").strip() for line in lines if line.startswith("hint:")]
    why = (errors or lines or [_why_silent(log.parent)])[-1].removeprefix("error: ")
    return why, hints[-1] if errors and hints else ""


def _why_silent(folder: Path) -> str:
    """Why it printed nothing: most often because nothing can be written there."""
    import tempfile  # noqa: PLC0415 -- only where a start has failed

    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b" " * 4096)
    except OSError as error:
        return f"nothing can be written to {folder} ({error.strerror})"
    return "it printed nothing"


def _ask(
    url: str,
    path: str,
    token: str = "",
    *,
    body: bytes | None = None,
    patience: float = _ASK_SECONDS,
) -> dict[str, object]:
    """What the gateway answers, once it has proved itself on this connection; a body is posted."""
    host, port = host_and_port(url)
    authority = authority_of(host, port)
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"host: {authority}"]
    lines += ["connection: close", f"content-length: {len(body or b'')}"]
    if token:
        lines.append(f"x-jackline-control: {token}")
    if body:
        lines.append("content-type: application/json")
    request = "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
    until = time.monotonic() + patience
    with socket.create_connection((host, port), timeout=patience) as line:
        try:
            with safe_files():
                key = installation_key(make=False)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise UnprovenError(f"there is no installation key to prove it with: {why}") from error
        prove(line, authority, key, until)
        status, answer = whole_answer(line, request, until, _LARGEST_ANSWER)
    if status >= 400:
        raise _RefusalError(status, answer)
    document = json.loads(answer)
    if not isinstance(document, dict):
        raise ValueError("not a gateway's answer")  # noqa: TRY004 -- the answer's value is wrong
    return cast("dict[str, object]", document)


def not_running(state: StateDir, port: int | None = None) -> JacklineError:
    """The error that says that there is no gateway, or none at this port."""
    if port is not None:
        return UnreachableError(
            f"no gateway of yours runs at port {port}",
            hint=f"start one with: jackline up --port {port}; without --port, the one that runs is"
            " found by its state folder",
        )
    return UnreachableError(
        f"no gateway runs for {state.folder}", hint="start one with: jackline up"
    )
