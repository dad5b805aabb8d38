"""The bridge's way to the service: find or start it, keep a session open, bring answers home.

Laws: (1) the service is started when none runs, and found again after a restart: the client's
session is opened anew behind its back; (2) a request that was under way when the service died is
answered with an error that says how to find its work again: it is never sent twice; (3) every
request is answered once, whatever happens to the service; (4) while the service is being started,
the tools are listed from the package's own list: clients give a list less time than a start takes.
Not here: reading the client (mcp_bridge.py), HTTP (conversing.py), the tools (mcp_server/).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator

from jackline.quick.asking import ask
from jackline.quick.conversing import Conversation
from jackline.quick.finding import Word, word_of_service
from jackline.quick.mcp_printing import print_message

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
        "JACKLINE_CALL",
        *("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "AI_AGENT"),
        *("CLAUDE_CODE_SESSION_ID", "CLAUDE_PROJECT_DIR", "MCP_TOOL_TIMEOUT"),
        *("CLAUDE_CODE_MESSAGING_SOCKET", "CLAUDE_CODE_MESSAGING_TOKEN"),
    }
)


class ServiceGoneError(Exception):
    """The service does not answer, or broke off; its words are for the client."""


class UnsentError(ServiceGoneError):
    """The service never took the message, so that it may be sent again."""


class _Session:
    """A session that was opened with one service."""

    __slots__ = ("name", "version", "word")

    def __init__(self, word: Word, name: str = "", version: str = "") -> None:
        self.word = word
        self.name = name
        self.version = version


class Link:
    """One client's way to the service."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._opening = threading.Lock()
        self._first = b""
        self._session: _Session | None = None
        self._under_way: list[threading.Thread] = []

    def open(self, first: bytes) -> None:
        """Open the session for a client that was welcomed; failing that, its next message tries."""
        self._first = first
        self._leave()
        word = word_of_service(self._arguments)
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

    def _sent(self, line: bytes) -> tuple[_Session, Conversation]:
        session = self._session or self._opened(None)
        try:
            return session, _ask(session, "POST", line)
        except UnsentError:
            session = self._opened(session)
            return session, _ask(session, "POST", line)

    def _bring(
        self, talk: Conversation, session: _Session, line: bytes, message: dict[str, object]
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
            session = _Session(self._service(start=start))
            talk = _ask(session, "POST", self._first)
            session.version = str(_result(talk).get("protocolVersion", ""))
            session.name = talk.headers.get("mcp-session-id", "")
            _heard(_ask(session, "POST", _INITIALIZED), {})
            self._session = session
            threading.Thread(target=self._listen, args=(session,), daemon=True).start()
            return session

    def _service(self, *, start: bool) -> Word:
        word = word_of_service(self._arguments)
        if word is None or not _answers(word):
            if not start:
                raise UnsentError(_GONE)
            _start(self._arguments)
            word = word_of_service(self._arguments)
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


def _ask(session: _Session, method: str, body: bytes = b"") -> Conversation:
    """A request that the service has been sent; UnsentError when nobody took it."""
    headers = _headers(session)
    try:
        return Conversation(session.word, method, "/mcp", headers, body, seconds=_CONNECT_SECONDS)
    except OSError as error:
        raise UnsentError(_GONE) from error


def _end(session: _Session) -> None:
    try:
        _heard(_ask(session, "DELETE"), {})
    except ServiceGoneError:
        return  # it has gone as well


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
        "mcp-session-id": session.name,
        "mcp-protocol-version": session.version,
    }
    return {name: value for name, value in told.items() if value}


def _heard(talk: Conversation, message: dict[str, object]) -> bool:
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


def _result(talk: Conversation) -> dict[str, object]:
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


def _messages(talk: Conversation) -> Iterator[dict[str, object]]:
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
            said = [str(error[part]).rstrip(".") for part in ("message", "next") if error.get(part)]
            return f": {'. '.join(said)}"
    return ""


def _answers(word: Word, seconds: float = _CONNECT_SECONDS) -> bool:
    return ask(word, "/healthz", seconds=seconds) is not None


def _start(arguments: list[str]) -> None:
    import subprocess  # noqa: PLC0415 -- only when none runs

    try:
        subprocess.run(  # noqa: S603 -- ourselves
            [sys.executable, "-P", "-m", "jackline", "up", "-d", *arguments],
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
