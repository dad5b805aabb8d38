"""`jackline mcp`: a client's stdio on one side, the service's tools over HTTP on the other.

Laws: (1) messages pass verbatim, one JSON document a line; requests run side by side; (2) the
service is started when none runs, and found again after a restart: the client's session is opened
anew behind its back; (3) a request that was under way when the service died is answered with an
error that says how to find its work again: it is never sent twice; (4) stdout carries the protocol
alone.
Not here: the tools (mcp_server/).
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from jackline.quick.finding import Word, word_of_service

_START_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_AGAIN_SECONDS = 2.0
# A client that has closed its side may still read what was just being answered.
_LAST_SECONDS = 2.0
_SERVER_ERROR = -32000
_GONE = (
    "the Jackline service went away while this was under way. What it had finished is kept: ask"
    " `agent_status`, or resume by the id that was told"
)
_NOT_STARTED = (
    "the Jackline service could not be started; run `jackline up` in a terminal to see why"
)
# What Claude Code tells its servers of itself: a service that outlives it must not pass it on.
_THE_CLIENTS = frozenset(
    {
        *("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "AI_AGENT"),
        *("CLAUDE_CODE_SESSION_ID", "CLAUDE_PROJECT_DIR", "MCP_TOOL_TIMEOUT"),
        *("CLAUDE_CODE_MESSAGING_SOCKET", "CLAUDE_CODE_MESSAGING_TOKEN"),
    }
)
_FAILURES = (OSError, http.client.HTTPException)


class ServiceGoneError(Exception):
    """The service does not answer, or does not know this session any more."""


def bridge(arguments: list[str]) -> int:
    """Pass messages on until the client closes its side."""
    link = Link(arguments)
    under_way: list[threading.Thread] = []
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        # Requests may take hours; each waits on its own.
        under_way = [thread for thread in under_way if thread.is_alive()]
        under_way.append(threading.Thread(target=link.pass_on, args=(line,), daemon=True))
        under_way[-1].start()
        # Before the next message the session must be open, or it would be opened twice.
        link.settle(line)
    until = time.monotonic() + _LAST_SECONDS
    for thread in under_way:
        thread.join(max(0.0, until - time.monotonic()))
    link.close()
    return 0


class Link:
    """One client's way to the service."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._printing = threading.Lock()
        self._opening = threading.Lock()
        self._opened = threading.Event()
        self._first: bytes | None = None
        self._word: Word | None = None
        self._session = ""
        self._version = ""
        self._generation = 0

    def settle(self, line: bytes) -> None:
        """Return once the message that opens a session has been answered."""
        if b'"initialize"' in line:
            self._opened.wait(_START_SECONDS + _CONNECT_SECONDS)

    def pass_on(self, line: bytes) -> None:
        """Send one message, and everything that comes back for it to the client."""
        message = _parsed(line)
        opening = message.get("method") == "initialize"
        try:
            if opening:
                self._first = line
                self._open(line)
            else:
                self._send(line, message)
        except ServiceGoneError as error:
            self._fail(message, str(error))
        finally:
            if opening:
                self._opened.set()

    def close(self) -> None:
        """Tell the service that the client has gone; what runs in the background goes on."""
        if self._word is not None and self._session:
            with suppress(ServiceGoneError):  # it may have gone as well
                self._exchange("DELETE", b"", printing=False)

    # --- sessions -------------------------------------------------------------------------------

    def _open(self, line: bytes) -> None:
        self._word = self._service()
        self._session = self._version = ""
        self._exchange("POST", line, printing=True)
        self._listen()

    def _reopen(self, generation: int) -> None:
        """Open the session anew, unless another thread has done so meanwhile."""
        with self._opening:
            if generation != self._generation or self._first is None:
                return
            self._word = self._service()
            self._session = ""
            self._exchange("POST", self._first, printing=False)
            self._exchange(
                "POST",
                b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
                printing=False,
            )
            self._generation += 1
            self._listen()

    def _send(self, line: bytes, message: dict[str, Any]) -> None:
        generation = self._generation
        try:
            try:
                answered = self._exchange("POST", line, printing=True)
            except UnsentError:
                self._reopen(generation)
                answered = self._exchange("POST", line, printing=True)
        except UnsentError:
            raise
        except ServiceGoneError:
            answered = set()
        if "id" in message and message["id"] not in answered:
            # The next message finds the service again; this one may have been acted upon.
            self._fail(message, _GONE)

    def _listen(self) -> None:
        threading.Thread(target=self._hear, args=(self._generation,), daemon=True).start()

    def _hear(self, generation: int) -> None:
        """Pass on what the service says unasked, for as long as this session lasts."""
        while generation == self._generation:
            # A service that went away is looked for by the next message; until then this listens.
            with suppress(ServiceGoneError):
                self._exchange("GET", b"", printing=True)
            time.sleep(_AGAIN_SECONDS)

    def _service(self) -> Word:
        word = word_of_service(self._arguments)
        if word is not None and _answers(word):
            return word
        subprocess.run(  # noqa: S603 -- ourselves
            [sys.executable, "-m", "jackline", "up", "-d", *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=sys.stderr,
            env={name: text for name, text in os.environ.items() if name not in _THE_CLIENTS},
            check=False,
            timeout=_START_SECONDS,
        )
        word = word_of_service(self._arguments)
        if word is None or not _answers(word):
            raise ServiceGoneError(_NOT_STARTED)
        return word

    # --- HTTP -----------------------------------------------------------------------------------

    def _exchange(self, method: str, body: bytes, *, printing: bool) -> set[object]:
        """One request and all that comes back; UnsentError when the service never took it.

        Gives the ids that were answered: a stream that breaks off looks like one that ended.
        """
        word = self._word
        if word is None:
            raise UnsentError(_NOT_STARTED)
        line = http.client.HTTPConnection(word.host, word.port, timeout=_CONNECT_SECONDS)
        try:
            try:
                line.connect()
                if line.sock is not None:
                    line.sock.settimeout(None)
                line.request(method, "/mcp", body or None, self._headers(word))
            except _FAILURES as error:
                raise UnsentError(_GONE) from error
            try:
                return self._read(line.getresponse(), printing=printing)
            except _FAILURES as error:
                raise ServiceGoneError(_GONE) from error
        finally:
            line.close()

    def _headers(self, word: Word) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "x-jackline-control": word.token,
            # The service runs elsewhere: where the client works is told by where this was started.
            "x-jackline-folder": quote(os.environ.get("CLAUDE_PROJECT_DIR") or os.getcwd()),  # noqa: PTH109 -- pathlib would take time to load
        }
        if patience := os.environ.get("MCP_TOOL_TIMEOUT"):
            headers["x-jackline-patience-ms"] = patience
        if session := os.environ.get("CLAUDE_CODE_SESSION_ID"):
            headers["x-jackline-client-session"] = session
        if self._session:
            headers["mcp-session-id"] = self._session
        if self._version:
            headers["mcp-protocol-version"] = self._version
        return headers

    def _read(self, answer: http.client.HTTPResponse, *, printing: bool) -> set[object]:
        if answer.status in (401, 404):
            # A service that was started anew: it took nothing.
            raise UnsentError(_GONE)
        self._session = answer.headers.get("mcp-session-id") or self._session
        answered: set[object] = set()
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            data: list[bytes] = []
            for line in answer:
                if line.startswith(b"data:"):
                    data.append(line[5:].strip())
                elif not line.strip() and data:
                    answered.add(self._hand_over(b"\n".join(data), printing=printing))
                    data = []
        elif body := answer.read():
            answered.add(self._hand_over(body, printing=printing))
        return answered

    def _hand_over(self, message: bytes, *, printing: bool) -> object:
        """The id that this message answers, if it answers any."""
        told = _parsed(message)
        result = told.get("result")
        if not self._version and isinstance(result, dict):
            self._version = str(result.get("protocolVersion", ""))
        if printing and told:
            self._print(told)
        return None if "method" in told else told.get("id")

    def _fail(self, message: dict[str, Any], words: str) -> None:
        if "id" in message and "method" in message:
            error = {"code": _SERVER_ERROR, "message": f"Jackline: {words}."}
            self._print({"jsonrpc": "2.0", "id": message["id"], "error": error})

    def _print(self, message: dict[str, Any]) -> None:
        with self._printing:
            sys.stdout.buffer.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
            sys.stdout.buffer.flush()


class UnsentError(ServiceGoneError):
    """The service never took the message, so that it may be sent again."""


def _answers(word: Word) -> bool:
    line = http.client.HTTPConnection(word.host, word.port, timeout=_CONNECT_SECONDS)
    try:
        line.request("GET", "/healthz")
        return line.getresponse().status == 200
    except _FAILURES:
        return False
    finally:
        line.close()


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
