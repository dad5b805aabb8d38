"""Gateways as users run them: processes with a state folder, a port and an environment.

Rules: (1) whatever was started is ended, also when the test fails; (2) nothing of the home folder
of whoever runs the tests is read or written.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jackline.assembly import StateDir
from tests import warm_processes
from tests.cli.commands import Answer, jackline
from tests.own_home import key_folder
from tests.planted import KEY, PROMPT
from tests.ports import free_port

PATIENCE = 120.0  # only a test that fails ever waits so long


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.02)


@dataclass
class Place:
    """Where a gateway of a test lives."""

    folder: Path
    upstream: str
    port: int = field(default_factory=free_port)
    more: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> StateDir:
        return StateDir(self.folder / "state")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        home = str(self.folder / "home")
        return {
            "HOME": home,
            "XDG_CONFIG_HOME": home,
            "APPDATA": home,
            **key_folder(),
            "JACKLINE_PORT": str(self.port),
            "JACKLINE_UPSTREAM": self.upstream,
            "JACKLINE_STATE": str(self.state.folder),
            **self.more,
        }

    def jackline(self, *arguments: str | Path) -> Answer:
        return jackline(*arguments, env=self.env)

    def status(self) -> dict[str, Any]:
        answer = self.jackline("status", "--json")
        assert answer.code == 0, answer.err
        reported: dict[str, Any] = json.loads(answer.out)
        return reported

    @contextmanager
    def up(self, *arguments: str) -> Iterator[Up]:
        """`jackline up` in the foreground."""
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "stderr.txt"
        with log.open("wb") as errors:
            process = warm_processes.Popen(
                [sys.executable, "-m", "jackline", "up", *arguments],
                env={**os.environ, "TZ": "UTC", "PYTHONUTF8": "1", **self.env},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
        running = Up(process, log)
        try:
            until(lambda: b"jackline down" in log.read_bytes() or process.poll(), "the gateway")
            assert process.poll() is None, log.read_text()
            yield running
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=PATIENCE) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:
            return False

    def ends(self) -> None:
        """See to it that a gateway in the background ends."""
        running = self.state.running()
        self.jackline("down")
        if running is not None:
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGTERM)


@dataclass
class Up:
    """A gateway in the foreground."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def code(self) -> int:
        return self.process.wait(PATIENCE)


class Calling(threading.Thread):
    """A call in a thread of its own; `got` or `error` says what came of it."""

    def __init__(self, url: str, *, path: str = "/v1/messages", stream: bool = False) -> None:
        super().__init__(daemon=True)
        self._call: Callable[[], Called] = lambda: call(url, path=path, stream=stream)
        self.got: Called | None = None
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.got = self._call()
        except (OSError, http.client.HTTPException) as error:
            self.error = error


def call(url: str, *, path: str = "/v1/messages", stream: bool = False, **more: Any) -> Called:
    """One model call as a plain client makes it."""
    document = {
        "model": "claude-sonnet-4-6",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": PROMPT}],
        "stream": stream,
        **more,
    }
    headers = {"content-type": "application/json", "x-api-key": KEY}
    request = urllib.request.Request(  # noqa: S310 -- a loopback address
        f"{url}{path}", json.dumps(document).encode(), headers
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            return Called(answer.status, dict(answer.headers.items()), answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Called(error.code, dict(error.headers.items()), error.read())


@dataclass(frozen=True)
class Called:
    """What came of a call."""

    status: int
    headers: dict[str, str]
    body: bytes
