"""The bridge keeps to the protocol whatever it is told, and however its service behaves."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from jackline.assembly import RunningGateway, Service, StateDir
from jackline.mcp_server.handshake import VERSIONS
from jackline.private_files import installation_key
from tests.assembly.world import gateway, run
from tests.mcp_server.make_tool_list import LIST, listed
from tests.proving import prove_first

BRIDGES = 50
NOBODY = "http://127.0.0.1:9"
HEAVY = {"http.client", "email", "ssl", "asyncio", "subprocess", "urllib", "typing", "click"}


def opening(version: str = "2025-11-25", **params: object) -> dict[str, object]:
    told = {"protocolVersion": version, "capabilities": {}}
    client = {"clientInfo": {"name": "raw", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": told | client | params}


class Raw:
    """The bridge at the end of two pipes, without any client's library."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def say(self, message: object) -> None:
        text = message if isinstance(message, bytes) else json.dumps(message).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(text + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the bridge has left"
        return dict(json.loads(line))

    def ask(self, message: object) -> dict[str, Any]:
        self.say(message)
        return self.hear()


@contextmanager
def raw(state: Path, *options: str, **environ: str) -> Iterator[Raw]:
    process = subprocess.Popen(
        [sys.executable, *options, "-m", "jackline", "mcp", "--state", str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environ},
    )
    try:
        yield Raw(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def in_thread(work: Any) -> Any:
    """Run the bridge's side beside the service, whose loop must not stand still."""

    return asyncio.to_thread(work)


def test_the_bridge_says_what_the_service_would_say_itself(tmp_path: Path) -> None:
    assert VERSIONS == HANDSHAKE_PROTOCOL_VERSIONS

    async def main() -> None:
        async with gateway(tmp_path, NOBODY) as service:
            for version in (*VERSIONS, "1999-01-01", "2026-07-28"):
                message = opening(version)
                theirs = await in_thread(lambda m=message: _posted(service, m))
                assert await in_thread(lambda m=message: _welcomed(service, m)) == theirs

    run(main())


def _welcomed(service: Service, message: dict[str, object]) -> dict[str, Any]:
    with raw(service.config.state_dir) as bridge:
        return bridge.ask(message)


def _posted(service: Service, message: dict[str, object]) -> dict[str, Any]:
    running = StateDir(service.config.state_dir).running()
    assert running is not None
    host, _, port = service.url.partition("//")[2].partition(":")
    body = json.dumps(message).encode()
    with socket.create_connection((host, int(port))) as line:
        line.sendall(
            b"POST /mcp HTTP/1.1\r\nhost: %s\r\nx-jackline-control: %s\r\nconnection: close\r\n"
            b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
            b"content-length: %d\r\n\r\n%s"
            % (f"{host}:{port}".encode(), running.token.encode(), len(body), body)
        )
        received = b""
        while piece := line.recv(65536):
            received += piece
    (data,) = [part for part in received.splitlines() if part.startswith((b"data: {", b"{"))]
    return dict(json.loads(data.removeprefix(b"data: ")))


def test_a_client_is_welcomed_and_shown_the_tools_though_the_service_does_not_answer(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        StateDir(tmp_path).tell_running(RunningGateway(1, url, "u", "v", 1.0, "secret"))
        with raw(tmp_path) as bridge:
            assert bridge.ask(opening())["result"]["serverInfo"]["name"] == "jackline"
            bridge.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
            tools = bridge.ask({"jsonrpc": "2.0", "id": "l", "method": "tools/list"})
            assert tools["id"] == "l"
            assert tools["result"] == json.loads(LIST.read_text())


def test_the_tools_in_the_package_are_those_that_a_service_lists(tmp_path: Path) -> None:
    told = run(listed(tmp_path))
    # python -m tests.mcp_server.make_tool_list writes them anew.
    assert json.loads(LIST.read_text()) == told


def test_the_welcome_costs_nothing_but_json_and_the_way_to_a_running_service_a_socket(
    tmp_path: Path,
) -> None:
    def loaded(service: Service) -> list[str]:
        with raw(service.config.state_dir, "-X", "importtime") as bridge:
            bridge.ask(opening())
            assert "result" in bridge.ask({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            told = bridge.process.communicate()[1].decode()
        return [line.rpartition("|")[2].strip() for line in told.splitlines() if "|" in line]

    async def main() -> list[str]:
        async with gateway(tmp_path, NOBODY) as service:
            names: list[str] = await in_thread(lambda: loaded(service))
            return names

    names = run(main())
    ours = names[names.index("jackline.quick.entry") :]
    # What an editable install or the site loads at the start is not ours.
    assert not {name for name in ours if name.partition(".")[0] in HEAVY or name in HEAVY}
    assert ours.index("jackline.quick.mcp_bridge") < ours.index("socket")
    theirs = [name for name in ours if name.startswith("jackline")]
    light = ("quick", "mcp_server", "private_files", "gateway_proof", "local_address", "programs")
    assert all(name.startswith(tuple(f"jackline.{each}" for each in light)) for name in theirs)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{not json", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b'"text"', -32600),
        (json.dumps(opening(protocolVersion=7)).encode(), -32602),
        (json.dumps(opening(clientInfo="me")).encode(), -32602),
        (json.dumps(opening(capabilities=[])).encode(), -32602),
        (b'{"jsonrpc":"2.0","id":0,"method":"initialize"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}', -32601),
    ],
)
def test_what_is_no_message_yet_is_answered_at_once_and_forgotten(
    line: bytes, code: int, tmp_path: Path
) -> None:
    with Fake() as service:
        StateDir(tmp_path).tell_running(service.word)
        with raw(tmp_path) as bridge:
            bridge.say(b"")
            bridge.say(b'{"jsonrpc":"2.0","method":"notifications/cancelled"}')
            assert bridge.ask(line)["error"]["code"] == code
            assert "result" in bridge.ask(opening())


def test_errors_in_a_session_are_told_under_the_requests_own_id(tmp_path: Path) -> None:
    def talk(service: Service) -> None:
        with raw(service.config.state_dir) as bridge:
            assert "result" in bridge.ask(opening())
            bridge.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
            for number, (message, words) in enumerate(WRONG, 1):
                told = bridge.ask({"jsonrpc": "2.0", "id": number, **message})
                assert told["id"] == number
                assert words in str(told), told
            assert bridge.ask(b"{not json")["error"]["code"] == -32700
            # A text id, and a message that is larger than any buffer on the way.
            status = {"name": "why", "arguments": {"id": "x" * 900_000}}
            told = bridge.ask(
                {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": status}
            )
            assert told["id"] == "a"
            assert told["result"]["isError"]
            huge = {"jsonrpc": "2.0", "id": 99, "method": "ping", "params": {"x": "y" * 70_000_000}}
            told = bridge.ask(huge)
            assert told["id"] == 99
            assert "413" in told["error"]["message"]
            assert "result" in bridge.ask({"jsonrpc": "2.0", "id": 100, "method": "ping"})

    async def main() -> None:
        async with gateway(tmp_path, NOBODY) as service:
            await in_thread(lambda: talk(service))

    run(main())


WRONG: list[tuple[dict[str, object], str]] = [
    ({"method": "no/such"}, "Method not found"),
    ({"method": "tools/call"}, "error"),
    ({"method": "tools/call", "params": {"name": 7}}, "error"),
    ({"method": "tools/call", "params": {"name": "fly", "arguments": {}}}, "There is no tool"),
    ({"method": "tools/call", "params": {"name": "why", "arguments": []}}, "error"),
    ({"method": "tools/call", "params": {"name": "why", "arguments": {"id": 7}}}, "Nothing was"),
    ({"method": "tools/call", "params": {"name": "agent", "arguments": {"prompt": []}}}, "prompt"),
    (
        {"method": "tools/call", "params": {"name": "agent", "arguments": {"background": "yes"}}},
        "background",
    ),
]


def test_fifty_bridges_at_once_are_all_served(tmp_path: Path) -> None:
    def talk(service: Service) -> None:
        with ExitStack() as stack:
            state = service.config.state_dir
            bridges = [stack.enter_context(raw(state)) for _ in range(BRIDGES)]
            for bridge in bridges:
                bridge.say(opening())
            for bridge in bridges:
                assert "result" in bridge.hear()
                bridge.say({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
                bridge.say(
                    {
                        "jsonrpc": "2.0",
                        "id": 2,
                        "method": "tools/call",
                        "params": {"name": "status", "arguments": {}},
                    }
                )
            for bridge in bridges:
                told = {answer["id"]: answer for answer in (bridge.hear(), bridge.hear())}
                assert "tools" in told[1]["result"]
                assert not told[2]["result"]["isError"]

    async def main() -> None:
        async with gateway(tmp_path, NOBODY) as service:
            await in_thread(lambda: talk(service))

    run(main())


def test_a_newer_client_finds_its_way_by_the_older_handshake(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, NOBODY) as service:
            server = StdioServerParameters(
                command=sys.executable,
                args=["-m", "jackline", "mcp", "--state", str(service.config.state_dir)],
                env=dict(os.environ),
            )
            async with Client(stdio_client(server)) as client:
                told = await client.call_tool("status", {})
                assert not told.is_error

    run(main())


class Fake:
    """A service that opens sessions, and answers pings and listeners with what it was given."""

    def __init__(self, pings: Sequence[bytes] = (), said: bytes = b"") -> None:
        self._pings = iter(pings)
        self._said = said
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._kept: list[socket.socket] = []

    @property
    def word(self) -> RunningGateway:
        url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        return RunningGateway(1, url, "u", "v", 1.0, "secret")

    def __enter__(self) -> Self:
        installation_key()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Be gone, as after a kill."""
        if self._thread.is_alive():
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
        for line in self._kept:
            line.close()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            prove_first(line)
            asked = line.recv(65536)
            if asked.startswith(b"DELETE"):
                self._kept.append(line)  # never answered
                continue
            with line:
                line.sendall(self._answer(asked))

    def _answer(self, asked: bytes) -> bytes:
        if asked.startswith(b"GET /healthz"):
            return b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
        if b'"initialize"' in asked:
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nmcp-session-id: s"
            told = {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": "2025-11-25"}}
            return head + b"\r\n\r\ndata: " + json.dumps(told).encode() + b"\n\n"
        if b'"ping"' in asked:
            return next(self._pings)
        if asked.startswith(b"GET"):
            return self._said
        return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"


def test_a_service_that_breaks_off_in_the_middle_leaves_no_request_unanswered(
    tmp_path: Path,
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    broken = [
        b"",
        b"HTTP/1.1 2",
        b"nonsense\r\n\r\n",
        head + b"\r\n",
        head + b"\r\nff\r\ndata: {",
        head + b"\r\nzz\r\ndata: {",
        head + b'\r\n10\r\ndata: {"id": 1}\n\r\n0\r\n\r\n',
        b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{}",
    ]
    with Fake(broken) as service:
        StateDir(tmp_path).tell_running(service.word)
        with raw(tmp_path) as bridge:
            assert "result" in bridge.ask(opening())
            for number in range(1, len(broken) + 1):
                told = bridge.ask({"jsonrpc": "2.0", "id": number, "method": "ping"})
                assert told["id"] == number
                assert "agent_status" in told["error"]["message"]


def test_a_client_that_leaves_is_not_kept_by_a_service_that_does_not_answer(tmp_path: Path) -> None:
    with Fake() as service:
        StateDir(tmp_path).tell_running(service.word)
        with raw(tmp_path) as bridge:
            assert "result" in bridge.ask(opening())
            bridge.process.communicate(timeout=60)
            assert bridge.process.returncode == 0


def test_a_service_that_was_started_anew_is_listened_to_before_anybody_asks(tmp_path: Path) -> None:
    news = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "finished"}}
    said = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: %s\n\n"
    pong = b'HTTP/1.1 200 OK\r\ncontent-length: 21\r\n\r\n{"id":1,"result":{} }'
    with ExitStack() as stack, Fake(said=said % json.dumps(news).encode()) as second:
        first = stack.enter_context(Fake([pong]))
        StateDir(tmp_path).tell_running(first.word)
        bridge = stack.enter_context(raw(tmp_path))
        assert "result" in bridge.ask(opening())
        assert bridge.ask({"jsonrpc": "2.0", "id": 1, "method": "ping"}) == {"id": 1, "result": {}}
        first.end()
        StateDir(tmp_path).tell_running(second.word)
        assert bridge.hear() == news
