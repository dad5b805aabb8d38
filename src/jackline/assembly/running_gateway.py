"""Find the gateway that runs, ask it, give it orders, and start one in the background.

Laws: (1) a gateway counts as running only when it answers, and is the one that left its word; (2)
orders carry the token from the state folder, which only this user can read; (3) nothing of a proxy:
the gateway is on this machine.
Not here: running it in the foreground (cli/up.py).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from jackline.assembly.addresses import local_url
from jackline.assembly.state_dir import Running, StateDir
from jackline.errors import JacklineError, UnreachableError, UsageError
from jackline.gateway.settings import ListenSettings

_ASK_SECONDS = 5.0
# Who answers at an address that nobody left word of may be anyone, and silent.
_KNOCK_SECONDS = 1.0
# A machine that is busy with a fleet takes its time; one that fails ends at once and says why.
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_LOOK_EVERY = 0.05
_UNTRUSTED = 401
# Whatever holds the port may be no gateway, and speak no HTTP.
_NO_ANSWER = (OSError, ValueError, http.client.HTTPException)
# On Windows alone; elsewhere a session of its own does the same.
_DETACHED = sum(
    getattr(subprocess, name, 0) for name in ("DETACHED_PROCESS", "CREATE_NEW_PROCESS_GROUP")
)


def stranger(url: str) -> dict[str, object] | None:
    """What the gateway at an address that nobody left word of says of itself, if it is one."""
    return hello(url, patience=_KNOCK_SECONDS)


def find(state: StateDir, listen: ListenSettings | None = None) -> Running | None:
    """The gateway of this state folder, if it answers.

    With `listen`, one that could leave no word in its folder is found by its port.
    """
    running = state.running()
    if running is not None:
        told = hello(running.url, running.token)
        if told is not None and _is_the_same(told, running):
            return running
    if listen is None or listen.port == 0:
        return None
    url = local_url(listen.host, listen.port)
    told = stranger(url)
    if told is None or told.get("state") != str(state.folder.absolute()):
        return None
    pid = told.get("process")
    return Running(pid if isinstance(pid, int) else 0, url, "", str(told["jackline"]), 0.0, "")


def find_lasting(state: StateDir, listen: ListenSettings) -> Running | None:
    """The gateway of this state folder; one that is just being stopped is seen off first."""
    running = find(state, listen)
    if running is not None:
        told = hello(running.url, running.token)
        if told is None or told.get("stopping") is True:
            wait_until_gone(state, running)
            return find(state, listen)
    return running


def hello(url: str, token: str = "", patience: float = _ASK_SECONDS) -> dict[str, object] | None:
    """What the Jackline gateway at this address says of itself; None if there is none."""
    try:
        told = _ask(f"{url}/", token, patience=patience)
    except _NO_ANSWER:
        return None
    return told if "jackline" in told else None


def status_of(running: Running) -> dict[str, object]:
    """How the gateway stands."""
    return reading_of(running, "status")


def reading_of(running: Running, name: str) -> dict[str, object]:
    """What the gateway tells under this name, such as `status` or `fleet`."""
    try:
        return _ask(f"{running.url}/_jackline/{name}", running.token)
    except _NO_ANSWER as error:
        raise UnreachableError(
            f"the gateway at {running.url} does not answer", next="start it with: jackline up"
        ) from error


def fullest_window(url: str) -> tuple[float, float] | None:
    """The used share of the fullest window that the gateway knows of, and when it refills.

    None when there is none, or the gateway does not say: then nothing is to be kept back.
    """
    try:
        told = _ask(f"{url}/_jackline/status").get("forecast")
    except _NO_ANSWER:
        return None
    windows = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    used = [(float(each["used"]), float(each["resets_at"])) for each in windows]
    return max(used, default=None)


def order(
    running: Running, name: str, told: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Give an order, such as `stop`, with what it is about; UsageError when it is refused."""
    try:
        return _ask(f"{running.url}/_jackline/{name}", running.token, method="POST", told=told)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == _UNTRUSTED:
                # Its folder could not be written to, so that its token is known to nobody.
                raise UnreachableError(
                    f"the gateway at {running.url} does not know us: its token was not kept",
                    next=f"end its process by hand: {running.pid}",
                ) from error
            raise _refused(error) from error
    except _NO_ANSWER as error:
        raise UnreachableError(
            f"the gateway at {running.url} did not take the order: {error}",
            next=f"end its process by hand: {running.pid}",
        ) from error


def start_in_background(state: StateDir, arguments: Sequence[str]) -> Running:
    """Start a gateway that outlives this command, and wait until it answers."""
    try:
        state.make()
        log = state.open_log()
    except OSError as error:
        raise UnreachableError(
            f"no gateway can be started: {state.folder} cannot be written to ({error.strerror})",
            next="name another folder with --state or JACKLINE_STATE",
        ) from error
    with log:
        begin = log.tell()
        process = subprocess.Popen(  # noqa: S603 -- ourselves
            [sys.executable, "-P", "-m", "jackline", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            creationflags=_DETACHED,
            start_new_session=os.name != "nt",
        )
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        running = state.running()
        if running is not None and running.pid == process.pid and hello(running.url, running.token):
            return running
        if process.poll() is not None:
            # It may have found another one that was quicker, and perhaps is not ready yet.
            other = find(state)
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
        next=what_to_do
        or f"run it in the foreground to see more: jackline up; its log is {state.log}",
    )


def wait_until_gone(state: StateDir, running: Running) -> bool:
    """Whether the gateway has ended, and let go of its folder, within its time."""
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline:
        word = state.running()
        if word is None or word.pid != running.pid or not _is_alive(running.pid):
            return True
        time.sleep(_LOOK_EVERY)
    return False


def was_killed(state: StateDir, url: str) -> bool:
    """Whether the gateway at this address has gone without taking back its word in the folder."""
    word = state.running()
    if word is None or word.url != url:
        return False
    if os.name != "nt":
        # One that we have started ourselves counts as alive until we have seen its end.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(word.pid, os.WNOHANG)
    return not _is_alive(word.pid)


def _is_the_same(told: dict[str, object], running: Running) -> bool:
    # Another gateway may have taken the port of one that was killed and left its word behind; one
    # that does not tell its process is taken by the word in its folder.
    return told.get("process") in (None, running.pid)


def _is_alive(pid: int) -> bool:
    if os.name == "nt":
        return True  # asking there would end it; its word in the folder has to do
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's: it lives
    return True


def _last_words(log: Path, begin: int) -> tuple[str, str]:
    """Why it ended, and what it told to do next, if it did."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    told = [line.removeprefix("next:").strip() for line in lines if line.startswith("next:")]
    why = (errors or lines or ["it said nothing"])[-1].removeprefix("error: ")
    return why, told[-1] if errors and told else ""


def _ask(
    url: str,
    token: str = "",
    *,
    method: str = "GET",
    patience: float = _ASK_SECONDS,
    told: Mapping[str, object] | None = None,
) -> dict[str, object]:
    headers = {"x-jackline-control": token} if token else {}
    if told is not None:
        headers["content-type"] = "application/json"
    request = urllib.request.Request(  # noqa: S310 -- an address that our own gateway has written
        url,
        method=method,
        data=(b"" if told is None else json.dumps(told).encode()) if method == "POST" else None,
        headers=headers,
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=patience) as answer:
        told = json.load(answer)
    if not isinstance(told, dict):
        raise ValueError("not a gateway's answer")  # noqa: TRY004 -- the answer's value is wrong
    return cast("dict[str, object]", told)


def _refused(error: urllib.error.HTTPError) -> UsageError:
    try:
        told = json.load(error)["error"]
        return UsageError(f"the gateway refuses: {told['message']}", next=told.get("next") or "")
    except (*_NO_ANSWER, KeyError, TypeError):  # not in our words: its status has to do
        return UsageError(
            f"the gateway refuses with HTTP status {error.code}",
            next="it may be of another version: jackline down, then jackline up",
        )


def not_running(state: StateDir) -> JacklineError:
    """The error that says that there is no gateway."""
    return UnreachableError(
        f"no gateway runs for {state.folder}", next="start one with: jackline up"
    )
