"""Connect the MCP bridge with the service: find or start it, open a session, return answers.

Rules: (1) the service is started when none runs, and found again after a restart: the session is
then opened anew without the client; (2) a request that was running when the service died is
answered with an error that says how to find its work again: it is never sent twice; (3) every
request is answered once, whatever happens to the service; (4) while the service starts, tools are
listed from the package's own list; (5) only connecting and the proof have a time limit: answers may
take hours; (6) a body that ends too early raises, and never counts as complete; (7) nothing is sent
before the service has proved to be this user's; no proxy is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

from jackline.gateway_proof import prove
from jackline.local_address import authority_of
from jackline.private_files import installation_key
from jackline.programs import own_command
from jackline.quick.service import ServiceInfo, find_service

_LONGEST_LINE = 65_536
_PIECE = 65_536
_START_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_AGAIN_SECONDS = 2.0
# A service that has not answered by then is waited for in the background.
_AT_ONCE_SECONDS = 1.0
# A client that has closed its side may still read what was just being answered.
_LAST_SECONDS = 2.0
_SERVER_ERROR = -32000
_GONE = (
    "the Jackline service went away while this was running. What it had finished is saved: call"
    " `agent_status`, or resume by the id that you got"
)
_NOT_STARTED = (
    "the Jackline service could not be started; run `jackline up` in a terminal to see why"
)
_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
# What Claude Code passes to its servers, and the mark by which what an agent leaves behind is
# ended with it: a service that outlives them must not have it, nor pass it on.
_THE_CLIENTS = frozenset(
    {
        *("JACKLINE_CALL", "JACKLINE_TASK"),
        *("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "AI_AGENT"),
        *("CLAUDE_CODE_SESSION_ID", "CLAUDE_PROJECT_DIR", "MCP_TOOL_TIMEOUT"),
        *("CLAUDE_CODE_MESSAGING_SOCKET", "CLAUDE_CODE_MESSAGING_TOKEN"),
    }
)
_PLAIN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~/"
_TASK = b"JACKLINE_TASK="
_MOST_ABOVE = 64


class ServiceGoneError(Exception):
    """The service does not answer, or broke off; its text is for the client."""


class UnsentError(ServiceGoneError):
    """The service never got the message, so that it may be sent again."""


class _Response:
    """A request that was sent; its answer is read from here. Close it."""

    def __init__(self, service: ServiceInfo, method: str, headers: dict[str, str], body: bytes):
        """Connect and send; OSError means that the service did not get it."""
        until = time.monotonic() + _CONNECT_SECONDS
        authority = authority_of(service.host, service.port)
        lines = [f"{method} /mcp HTTP/1.1", f"host: {authority}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {len(body)}", "", ""]
        address = (service.host, service.port)
        self._socket = socket.create_connection(address, timeout=_CONNECT_SECONDS)
        try:
            prove(self._socket, authority, installation_key(make=False), until)
            self._socket.settimeout(_CONNECT_SECONDS)
            self._socket.sendall("\r\n".join(lines).encode("latin-1") + body)
            self._socket.settimeout(None)
            self._file = self._socket.makefile("rb")
        except OSError:
            self._socket.close()
            raise
        self.status = 0
        self.headers: dict[str, str] = {}

    def read_head(self) -> None:
        """Wait for the answer's status and headers."""
        first = self._text_line().split(" ", 2)
        if len(first) < 2 or not first[0].startswith("HTTP/1.") or not first[1].isdecimal():
            raise ConnectionError("this is no answer in HTTP")
        self.status = int(first[1])
        while line := self._text_line():
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()

    def messages(self) -> Iterator[dict[str, object]]:
        """The messages in the body, as they arrive."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            yield from _parsed(b"".join(self._pieces()))
            return
        data: list[bytes] = []
        for line in self._lines():
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
            elif not line.strip():
                yield from _parsed(b"\n".join(data))
                data = []

    def refusal(self) -> str:
        """What the service says about a request that it refused."""
        text = f"the service answered {self.status}"
        for message in _parsed(b"".join(self._pieces())):
            error = message.get("error")
            if isinstance(error, dict):
                parts = [
                    str(error[key]).rstrip(".") for key in ("message", "hint") if error.get(key)
                ]
                return f"{text}: {'. '.join(parts)}"
        return text

    def close(self) -> None:
        """Close the connection, also if the service still answers."""
        self._file.close()
        self._socket.close()

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for piece in self._pieces():
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
        if rest:
            yield rest

    def _pieces(self) -> Iterator[bytes]:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := self._chunk_size():
                yield from self._exactly(size)
                self._text_line()
            while self._text_line():
                pass  # trailers, which we do not need
        elif (length := self.headers.get("content-length", "")).isdecimal():
            yield from self._exactly(int(length))
        else:
            while piece := self._file.read1(_PIECE):
                yield piece

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self._file.read1(min(size, _PIECE))
            if not piece:
                raise ConnectionError("the answer broke off")
            size -= len(piece)
            yield piece

    def _chunk_size(self) -> int:
        try:
            return int(self._text_line().partition(";")[0], 16)
        except ValueError:
            raise ConnectionError("this is no chunk") from None

    def _text_line(self) -> str:
        line = self._file.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise ConnectionError("the answer broke off")
        return line.strip().decode("latin-1")


class _Session:
    """A session that was opened with one service."""

    def __init__(self, service: ServiceInfo, parent_task: str) -> None:
        self._service = service
        self._parent_task = parent_task
        self.id = ""
        self.version = ""

    def send(self, method: str, body: bytes = b"") -> _Response:
        """Send a request; UnsentError when nobody got it."""
        folder = os.fsencode(os.environ.get("CLAUDE_PROJECT_DIR") or os.getcwd())  # noqa: PTH109 -- pathlib would take time to load
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "x-jackline-control": self._service.token,
            # The service runs elsewhere: the client works where this process was started.
            # Everything but plain letters percent-encoded, as `urllib.parse` would.
            "x-jackline-folder": "".join(
                chr(sign) if sign in _PLAIN else f"%{sign:02X}" for sign in folder
            ),
            "x-jackline-patience-ms": os.environ.get("MCP_TOOL_TIMEOUT", ""),
            "x-jackline-client-session": os.environ.get("CLAUDE_CODE_SESSION_ID", ""),
            "x-jackline-parent-task": self._parent_task,
            "mcp-session-id": self.id,
            "mcp-protocol-version": self.version,
        }
        used = {name: value for name, value in headers.items() if value}
        try:
            return _Response(self._service, method, used, body)
        except OSError as error:
            raise UnsentError(_GONE) from error

    def initialize(self, first: bytes) -> None:
        """Open it with the client's own message, which the client has an answer to already."""
        response = self.send("POST", first)
        try:
            response.read_head()
            if response.status >= 400:
                raise ServiceGoneError(response.refusal())
            results = [message.get("result") for message in response.messages()]
        except OSError as error:
            raise UnsentError(_GONE) from error
        finally:
            response.close()
        found = next((result for result in results if isinstance(result, dict)), {})
        self.version = str(found.get("protocolVersion", ""))
        self.id = response.headers.get("mcp-session-id", "")


class McpLink:
    """One client's connection to the service; `send` writes a message to the client."""

    def __init__(self, arguments: list[str], send: Callable[[dict[str, object]], None]) -> None:
        self._arguments = arguments
        self._send = send
        # Now: the programs above may end before this one does.
        self._parent_task = parent_task()
        self._opening = threading.Lock()
        self._first = b""
        self._session: _Session | None = None
        self._waiting: list[threading.Thread] = []

    def open(self, first: bytes) -> None:
        """Open the session for a client that was welcomed; failing that, its next message tries."""
        self._first = first
        self._leave()
        if _answers(find_service(self._arguments), _AT_ONCE_SECONDS):
            self._try_to_open()
        else:
            threading.Thread(target=self._try_to_open, daemon=True).start()

    def _try_to_open(self) -> None:
        try:
            self._opened(None)
        except ServiceGoneError as error:
            sys.stderr.write(f"Jackline: {error}.\n")

    def pass_on(self, line: bytes, message: dict[str, object]) -> None:
        """Send one message; everything that comes back for it goes to the client, later."""
        if message.get("method") == "notifications/initialized":
            return  # was sent to the service when the session was opened
        if message.get("method") == "tools/list" and "id" in message and self._session is None:
            here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 -- as above
            with open(os.path.join(here, "..", "mcp_server", "tools.json"), "rb") as file:  # noqa: PTH118, PTH123
                self._send({"jsonrpc": "2.0", "id": message["id"], "result": json.load(file)})
            return
        try:
            session = self._session or self._opened(None)
            try:
                response = session.send("POST", line)
            except UnsentError:
                session = self._opened(session)
                response = session.send("POST", line)
        except ServiceGoneError as error:
            self._fail(message, str(error))
            return
        # Answers may take hours; each is waited for on its own.
        waits = threading.Thread(
            target=self._return_answer, args=(response, session, line, message), daemon=True
        )
        waits.start()
        self._waiting = [*(each for each in self._waiting if each.is_alive()), waits]

    def close(self) -> None:
        """End the session of a client that has gone; what runs in the background goes on."""
        until = time.monotonic() + _LAST_SECONDS
        for thread in self._waiting:
            thread.join(max(0.0, until - time.monotonic()))
        self._leave()

    # --- messages -------------------------------------------------------------------------------

    def _return_answer(
        self, response: _Response, session: _Session, line: bytes, message: dict[str, object]
    ) -> None:
        try:
            try:
                answered = self._forward(response, message)
            except UnsentError:
                # A service that was started anew did not know the session, and did nothing.
                session = self._opened(session)
                answered = self._forward(session.send("POST", line), message)
        except ServiceGoneError as error:
            self._fail(message, str(error))
            return
        if not answered:
            # The next message finds the service again; this one may have been acted upon.
            self._fail(message, _GONE)

    def _forward(self, response: _Response, message: dict[str, object]) -> bool:
        """Send what comes back to the client; whether the message was answered, if it needs that.

        A stream that breaks off before raises ServiceGoneError, or looks like one that ended.
        """
        try:
            response.read_head()
            if response.status in (401, 404):
                raise UnsentError(_GONE)
            if response.status >= 400:
                self._fail(message, response.refusal())
                return True
            answered = "id" not in message or "method" not in message
            for found in response.messages():
                self._send(found)
                answered = answered or ("method" not in found and found.get("id") == message["id"])
        except OSError as error:
            raise ServiceGoneError(_GONE) from error
        finally:
            response.close()
        return answered

    def _fail(self, message: dict[str, object], text: str) -> None:
        if "id" in message and "method" in message:
            error = {"code": _SERVER_ERROR, "message": f"Jackline: {text}."}
            self._send({"jsonrpc": "2.0", "id": message["id"], "error": error})

    def _listen(self, session: _Session) -> None:
        """Pass on what the service sends by itself, for as long as this session lasts."""
        while self._session is session:
            try:
                self._forward(session.send("GET"), {})
            except UnsentError:
                # Nobody is there, or nobody who knows this session. It is not started here: that
                # is for a request. It is tried again soon.
                with contextlib.suppress(ServiceGoneError):
                    self._opened(session, start=False)
            except ServiceGoneError:
                pass  # it broke off; the next request shows whether it has gone
            time.sleep(_AGAIN_SECONDS)

    # --- sessions -------------------------------------------------------------------------------

    def _opened(self, stale: _Session | None, *, start: bool = True) -> _Session:
        """A session to use instead of the stale one, which another thread may have opened."""
        with self._opening:
            if self._session is not None and self._session is not stale:
                return self._session
            session = _Session(self._service(start=start), self._parent_task)
            session.initialize(self._first)
            self._forward(session.send("POST", _INITIALIZED), {})
            self._session = session
            threading.Thread(target=self._listen, args=(session,), daemon=True).start()
            return session

    def _service(self, *, start: bool) -> ServiceInfo:
        service = find_service(self._arguments)
        if not _answers(service):
            if not start:
                raise UnsentError(_GONE)
            import subprocess  # noqa: PLC0415 -- only when none runs

            try:
                subprocess.run(  # noqa: S603 -- ourselves
                    own_command("up", "-d", *self._arguments),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=sys.stderr,
                    env={name: t for name, t in os.environ.items() if name not in _THE_CLIENTS},
                    check=False,
                    timeout=_START_SECONDS,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise UnsentError(_NOT_STARTED) from error
            service = find_service(self._arguments)
        if service is None or not _answers(service):
            raise UnsentError(_NOT_STARTED)
        return service

    def _leave(self) -> None:
        session, self._session = self._session, None
        if session is not None and session.id:
            leaving = threading.Thread(target=self._end, args=(session,), daemon=True)
            leaving.start()
            # A service that does not answer must not keep the client's process from ending.
            leaving.join(_LAST_SECONDS)

    def _end(self, session: _Session) -> None:
        with contextlib.suppress(ServiceGoneError):  # it has gone as well
            self._forward(session.send("DELETE"), {})


def _parsed(text: bytes) -> list[dict[str, object]]:
    try:
        message = json.loads(text) if text else None
    except ValueError:
        return []
    return [message] if isinstance(message, dict) else []


def _answers(service: ServiceInfo | None, seconds: float = _CONNECT_SECONDS) -> bool:
    return service is not None and service.ask("/healthz", seconds=seconds) is not None


def parent_task() -> str:
    """The agent of ours for whose program this runs; empty for a person's.

    Codex hands a server only the variables that its settings name, so the programs above this one
    are looked at, too. Without `/proc` our runner's settings for Codex have to do.
    """
    process, task = os.getpid(), os.environ.get("JACKLINE_TASK", "")
    for _ in range(_MOST_ABOVE):
        if task or process <= 1:
            break
        try:
            with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123
                process = int(file.read().rpartition(b")")[2].split()[1])
            with open(f"/proc/{process}/environ", "rb") as file:  # noqa: PTH123
                lines = file.read().split(b"\0")
        except (OSError, ValueError, IndexError):
            break  # another system, another user's process, or one that has just ended
        named = (line[len(_TASK) :] for line in lines if line.startswith(_TASK))
        task = next(named, b"").decode("ascii", "replace")
    return task if task.isascii() and task.isprintable() else ""
