"""Connect the MCP bridge with the service: find or start it, hold a session, bring answers back.

Rules: (1) the service is started when none runs, and found again after a restart: the session is
then opened anew without the client; (2) a request that was under way when the service died is
answered with an error that says how to find its work again: it is never sent twice; (3) every
request is answered once, whatever happens to the service; (4) while the service starts, tools are
listed from the package's own list; (5) only connecting and the proof have a time limit: answers may
take hours; (6) a body that ends too early raises, and never counts as whole; (7) nothing is sent
before the service has proved to be this user's; no proxy is used.
Not here: reading the client (mcp_bridge.py), the tools (mcp_server/).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

from jackline.gateway_proof import authority_of, prove
from jackline.private_files import installation_key
from jackline.programs import own_command
from jackline.quick.mcp_output import print_message
from jackline.quick.service import ServiceInfo, ask, find_service

_LONGEST_LINE = 65_536
_PIECE = 65_536


class ServiceConversation:
    """A request that was sent; its answer is read from here. Close it."""

    def __init__(
        self,
        word: ServiceInfo,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        *,
        seconds: float,
    ) -> None:
        """Connect and send; OSError means that the service has not taken it."""
        until = time.monotonic() + seconds
        authority = authority_of(word.host, word.port)
        lines = [f"{method} {path} HTTP/1.1", f"host: {authority}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {len(body)}", "", ""]
        self._line = socket.create_connection((word.host, word.port), timeout=seconds)
        try:
            prove(self._line, authority, installation_key(make=False), until)
            self._line.settimeout(seconds)
            self._line.sendall("\r\n".join(lines).encode("latin-1") + body)
            self._line.settimeout(None)
            self._file = self._line.makefile("rb")
        except OSError:
            self._line.close()
            raise
        self.status = 0
        self.headers: dict[str, str] = {}

    def hear_head(self) -> None:
        """Wait for the answer's status and headers."""
        first = self._text_line().split(" ", 2)
        if len(first) < 2 or not first[0].startswith("HTTP/1.") or not first[1].isdecimal():
            raise ConnectionError("this is no answer in HTTP")
        self.status = int(first[1])
        while line := self._text_line():
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()

    def lines(self) -> Iterator[bytes]:
        """The body line by line, as it comes."""
        kept = b""
        for piece in self._pieces():
            *whole, kept = (kept + piece).split(b"\n")
            yield from whole
        if kept:
            yield kept

    def body(self) -> bytes:
        """All of the body."""
        return b"".join(self._pieces())

    def close(self) -> None:
        """Leave; whoever still answers finds nobody."""
        self._file.close()
        self._line.close()

    def _pieces(self) -> Iterator[bytes]:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := self._chunk_size():
                yield from self._exactly(size)
                self._text_line()
            while self._text_line():
                pass  # trailers, which say nothing to us
        elif (told := self.headers.get("content-length", "")).isdecimal():
            yield from self._exactly(int(told))
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


_START_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_AGAIN_SECONDS = 2.0
# A service that has not answered by then is waited for in the background.
_AT_ONCE_SECONDS = 1.0
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
_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
# What Claude Code tells its servers of itself, and the mark by which what an agent leaves behind is
# ended with it: a service that outlives them must not carry it, nor pass it on.
_THE_CLIENTS = frozenset(
    {
        *("JACKLINE_CALL", "JACKLINE_TASK"),
        *("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "AI_AGENT"),
        *("CLAUDE_CODE_SESSION_ID", "CLAUDE_PROJECT_DIR", "MCP_TOOL_TIMEOUT"),
        *("CLAUDE_CODE_MESSAGING_SOCKET", "CLAUDE_CODE_MESSAGING_TOKEN"),
    }
)


_TASK = b"JACKLINE_TASK="
_MOST_ABOVE = 64


class ServiceGoneError(Exception):
    """The service does not answer, or broke off; its words are for the client."""


class UnsentError(ServiceGoneError):
    """The service never took the message, so that it may be sent again."""


class _Session:
    """A session that was opened with one service."""

    __slots__ = ("name", "parent_task", "version", "word")

    def __init__(self, word: ServiceInfo, parent_task: str) -> None:
        self.word = word
        self.parent_task = parent_task
        self.name = ""
        self.version = ""


class McpLink:
    """One client's way to the service."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        # Now: the programs above may end before this one does.
        self._parent_task = parent_task()
        self._opening = threading.Lock()
        self._first = b""
        self._session: _Session | None = None
        self._under_way: list[threading.Thread] = []

    def open(self, first: bytes) -> None:
        """Open the session for a client that was welcomed; failing that, its next message tries."""
        self._first = first
        self._leave()
        word = find_service(self._arguments)
        if word is not None and _answers(word, _AT_ONCE_SECONDS):
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
            return  # was told to the service when the session was opened
        if message.get("method") == "tools/list" and "id" in message and self._session is None:
            print_message({"jsonrpc": "2.0", "id": message["id"], "result": _known_tools()})
            return
        try:
            session, talk = self._sent(line)
        except ServiceGoneError as error:
            _fail(message, str(error))
            return
        # Answers may take hours; each is waited for on its own.
        waits = threading.Thread(
            target=self._bring, args=(talk, session, line, message), daemon=True
        )
        waits.start()
        self._under_way = [*(each for each in self._under_way if each.is_alive()), waits]

    def close(self) -> None:
        """Tell the service that the client has gone; what runs in the background goes on."""
        until = time.monotonic() + _LAST_SECONDS
        for thread in self._under_way:
            thread.join(max(0.0, until - time.monotonic()))
        self._leave()

    # --- messages -------------------------------------------------------------------------------

    def _sent(self, line: bytes) -> tuple[_Session, ServiceConversation]:
        session = self._session or self._opened(None)
        try:
            return session, _ask(session, "POST", line)
        except UnsentError:
            session = self._opened(session)
            return session, _ask(session, "POST", line)

    def _bring(
        self, talk: ServiceConversation, session: _Session, line: bytes, message: dict[str, object]
    ) -> None:
        try:
            try:
                answered = _heard(talk, message)
            except UnsentError:
                # A service that was started anew did not know the session, and took nothing.
                session = self._opened(session)
                answered = _heard(_ask(session, "POST", line), message)
        except ServiceGoneError as error:
            _fail(message, str(error))
            return
        if not answered:
            # The next message finds the service again; this one may have been acted upon.
            _fail(message, _GONE)

    def _listen(self, session: _Session) -> None:
        """Pass on what the service says unasked, for as long as this session lasts."""
        while self._session is session:
            try:
                _heard(_ask(session, "GET"), {})
            except UnsentError:
                # Nobody is there, or nobody who knows this session.
                self._try_again(session)
            except ServiceGoneError:
                pass  # it broke off; whether it has gone is seen by asking again
            time.sleep(_AGAIN_SECONDS)

    def _try_again(self, session: _Session) -> None:
        # Not started here: that is for somebody who wants something.
        try:
            self._opened(session, start=False)
        except ServiceGoneError:
            return  # it comes, or goes: looked at again soon

    # --- sessions -------------------------------------------------------------------------------

    def _opened(self, stale: _Session | None, *, start: bool = True) -> _Session:
        """A session to use instead of the stale one, which another thread may have opened."""
        with self._opening:
            if self._session is not None and self._session is not stale:
                return self._session
            session = _Session(self._service(start=start), self._parent_task)
            talk = _ask(session, "POST", self._first)
            session.version = str(_result(talk).get("protocolVersion", ""))
            session.name = talk.headers.get("mcp-session-id", "")
            _heard(_ask(session, "POST", _INITIALIZED), {})
            self._session = session
            threading.Thread(target=self._listen, args=(session,), daemon=True).start()
            return session

    def _service(self, *, start: bool) -> ServiceInfo:
        word = find_service(self._arguments)
        if word is None or not _answers(word):
            if not start:
                raise UnsentError(_GONE)
            _start(self._arguments)
            word = find_service(self._arguments)
        if word is None or not _answers(word):
            raise UnsentError(_NOT_STARTED)
        return word

    def _leave(self) -> None:
        session, self._session = self._session, None
        if session is not None and session.name:
            leaving = threading.Thread(target=_end, args=(session,), daemon=True)
            leaving.start()
            # A service that does not answer must not keep the client's process from ending.
            leaving.join(_LAST_SECONDS)


# --- HTTP ---------------------------------------------------------------------------------------


def _ask(session: _Session, method: str, body: bytes = b"") -> ServiceConversation:
    """A request that the service has been sent; UnsentError when nobody took it."""
    headers = _headers(session)
    try:
        return ServiceConversation(
            session.word, method, "/mcp", headers, body, seconds=_CONNECT_SECONDS
        )
    except OSError as error:
        raise UnsentError(_GONE) from error


def _end(session: _Session) -> None:
    try:
        _heard(_ask(session, "DELETE"), {})
    except ServiceGoneError:
        return  # it has gone as well


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


def _headers(session: _Session) -> dict[str, str]:
    folder = os.environ.get("CLAUDE_PROJECT_DIR") or os.getcwd()  # noqa: PTH109 -- pathlib would take time to load
    told = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "x-jackline-control": session.word.token,
        # The service runs elsewhere: where the client works is told by where this was started.
        "x-jackline-folder": _quoted(folder),
        "x-jackline-patience-ms": os.environ.get("MCP_TOOL_TIMEOUT", ""),
        "x-jackline-client-session": os.environ.get("CLAUDE_CODE_SESSION_ID", ""),
        "x-jackline-parent-task": session.parent_task,
        "mcp-session-id": session.name,
        "mcp-protocol-version": session.version,
    }
    return {name: value for name, value in told.items() if value}


def _heard(talk: ServiceConversation, message: dict[str, object]) -> bool:
    """Print what comes back; whether the message was answered, if it wants an answer.

    A stream that breaks off before raises ServiceGoneError, or looks like one that ended.
    """
    try:
        talk.hear_head()
        if talk.status in (401, 404):
            raise UnsentError(_GONE)
        if talk.status >= 400:
            _fail(message, f"the service answered {talk.status}{_words(talk.body())}")
            return True
        answered = "id" not in message or "method" not in message
        for told in _messages(talk):
            print_message(told)
            answered = answered or ("method" not in told and told.get("id") == message["id"])
    except OSError as error:
        raise ServiceGoneError(_GONE) from error
    finally:
        talk.close()
    return answered


def _result(talk: ServiceConversation) -> dict[str, object]:
    """What `initialize` gave, which the client has been told already."""
    try:
        talk.hear_head()
        if talk.status >= 400:
            raise ServiceGoneError(f"the service answered {talk.status}{_words(talk.body())}")
        results = [told.get("result") for told in _messages(talk)]
    except OSError as error:
        raise UnsentError(_GONE) from error
    finally:
        talk.close()
    return next((result for result in results if isinstance(result, dict)), {})


def _messages(talk: ServiceConversation) -> Iterator[dict[str, object]]:
    if not talk.headers.get("content-type", "").startswith("text/event-stream"):
        yield from _parsed(talk.body())
        return
    data: list[bytes] = []
    for line in talk.lines():
        if line.startswith(b"data:"):
            data.append(line[5:].strip())
        elif not line.strip():
            yield from _parsed(b"\n".join(data))
            data = []


def _parsed(text: bytes) -> list[dict[str, object]]:
    try:
        message = json.loads(text) if text else None
    except ValueError:
        return []
    return [message] if isinstance(message, dict) else []


def _words(body: bytes) -> str:
    """What the service said about a request that it refused."""
    for told in _parsed(body):
        error = told.get("error")
        if isinstance(error, dict):
            said = [str(error[part]).rstrip(".") for part in ("message", "hint") if error.get(part)]
            return f": {'. '.join(said)}"
    return ""


def _answers(word: ServiceInfo, seconds: float = _CONNECT_SECONDS) -> bool:
    return ask(word, "/healthz", seconds=seconds) is not None


def _start(arguments: list[str]) -> None:
    import subprocess  # noqa: PLC0415 -- only when none runs

    try:
        subprocess.run(  # noqa: S603 -- ourselves
            own_command("up", "-d", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=sys.stderr,
            env={name: text for name, text in os.environ.items() if name not in _THE_CLIENTS},
            check=False,
            timeout=_START_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsentError(_NOT_STARTED) from error


def _fail(message: dict[str, object], words: str) -> None:
    if "id" in message and "method" in message:
        error = {"code": _SERVER_ERROR, "message": f"Jackline: {words}."}
        print_message({"jsonrpc": "2.0", "id": message["id"], "error": error})


def _known_tools() -> dict[str, object]:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 -- as above
    with open(os.path.join(here, "..", "mcp_server", "tools.json"), "rb") as file:  # noqa: PTH118, PTH123
        tools: dict[str, object] = json.load(file)
    return tools


def _quoted(text: str) -> str:
    """The text with everything but plain letters percent-encoded, as `urllib.parse` would."""
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~/"
    return "".join(chr(sign) if sign in plain else f"%{sign:02X}" for sign in os.fsencode(text))
