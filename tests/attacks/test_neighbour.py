"""Another user of the machine: a planted folder or file, a listener on a dead gateway's port."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackline.assembly import RunningGateway, StateDir
from jackline.errors import UnsafeFileError
from jackline.gateway_proof import socket_address
from jackline.private_files import _is_without_number, installation_key, is_signature
from jackline.quick.service import ServiceInfo, find_service
from jackline.testing import SimulatedProvider
from tests.attacks.listener import Answer as Trick
from tests.attacks.listener import Listener, greet, listening
from tests.cli.commands import Answer
from tests.cli.gateways import Calling, Place, call, until
from tests.proving import proof_for

pytestmark = pytest.mark.skipif(os.name == "nt", reason="owners and modes are POSIX's")

SECRET = "the-control-token"  # noqa: S105 -- planted, to be looked for
PROMPT = (
    b'{"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "my very own words"}'
)
WORDS = b"my very own words"
# Beyond what any system gives to a process.
DEAD = 2**30
VERBS = (
    ("status",),
    ("down",),
    ("env",),
    ("exec", "--", "env"),
    ("upstream", "ls"),
    ("open", "--print"),
    ("status", "--watch"),
)


def planted(folder: Path, url: str, *, pid: int = DEAD, token: str = SECRET) -> Path:
    """A `gateway.json` as a gateway would have left it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "gateway.json"
    word = RunningGateway(pid, url, "http://127.0.0.1:9", "9.9.9", time.time(), token)
    fields = {name: getattr(word, name) for name in RunningGateway.__slots__}
    path.write_text(json.dumps(fields))
    path.chmod(0o600)
    return path


def quick(place: Place, verb: str, told: bytes = PROMPT) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "jackline", verb],
        input=told,
        capture_output=True,
        env={**os.environ, **place.env},
        check=True,
        timeout=120,
    )
    return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A user who has no gateway, and whose port nobody holds."""
    installation_key()  # commands look for it, and a gateway has made it before
    here = Place(tmp_path, "http://127.0.0.1:9")
    yield here
    here.jackline("down")


def got_nothing(listener: Listener) -> None:
    """It was asked to prove itself, at most."""
    received = bytes(listener.received)
    assert SECRET.encode() not in received
    assert WORDS not in received
    assert b"POST" not in received
    assert b"x-jackline-control" not in received.lower()


# --- a listener on the port of a gateway that has died --------------------------------------------


@pytest.mark.parametrize("verb", ["hook", "statusline"])
def test_a_listener_on_a_dead_gateways_port_gets_no_prompt_and_says_nothing(
    place: Place, verb: str
) -> None:
    with listening() as neighbour:
        planted(place.state.folder, neighbour.url)
        said = quick(place, verb)
    got_nothing(neighbour)
    assert neighbour.received, "it was asked"
    assert b"evil" not in said


@pytest.mark.parametrize("verb", VERBS, ids=lambda words: words[0])
def test_a_listener_on_a_dead_gateways_port_gets_no_token_from_commands(
    place: Place, verb: tuple[str, ...]
) -> None:
    with listening() as neighbour:
        planted(place.state.folder, neighbour.url)
        done = place.jackline(*verb)
    got_nothing(neighbour)
    assert str(neighbour.port) not in done.out, "no client is pointed to it"
    assert "evil" not in done.out


def test_the_bridge_for_tools_says_nothing_to_a_listener(place: Place) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "c"},
        },
    }
    asked = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "agent", "arguments": {"prompt": WORDS.decode()}},
    }
    told = b"".join(json.dumps(each).encode() + b"\n" for each in (hello, asked))
    # The port is held, so that the bridge cannot start a gateway of its own either.
    with listening() as neighbour:
        planted(place.state.folder, neighbour.url)
        place.more["JACKLINE_PORT"] = str(neighbour.port)
        said = quick(place, "mcp", told)
    got_nothing(neighbour)
    assert b"evil" not in said
    answer = next(json.loads(line) for line in said.splitlines() if json.loads(line).get("id") == 2)
    assert "error" in answer


def test_a_relay_at_another_port_cannot_borrow_the_real_gateways_proof(place: Place) -> None:
    def relay(line: socket.socket, asked: bytes) -> None:
        with socket.create_connection(("127.0.0.1", place.port)) as real:
            own = f"127.0.0.1:{neighbour.port}".encode()
            real.sendall(asked.replace(own, f"127.0.0.1:{place.port}".encode()))
            line.sendall(real.recv(65536))

    with place.up(), listening(relay) as neighbour:
        word = place.state.running()
        assert word is not None
        token = word.token.encode()
        planted(place.state.folder, neighbour.url, pid=word.pid, token=word.token)
        quick(place, "hook")
        done = place.jackline("status")
    assert b"/_jackline/proof" in neighbour.received, "it was asked"
    assert token not in neighbour.received
    assert WORDS not in neighbour.received
    assert done.code == 5


def test_a_relay_at_another_address_cannot_borrow_the_real_gateways_proof(place: Place) -> None:
    """The gateway listens on 127.0.0.1 alone; a neighbour takes the same port of 127.0.0.2."""

    def relay(line: socket.socket, asked: bytes) -> None:
        with socket.create_connection(("127.0.0.1", place.port)) as real:
            real.sendall(asked.replace(b"127.0.0.2", b"127.0.0.1"))
            line.sendall(real.recv(65536))

    if sys.platform != "linux":
        return  # elsewhere the loopback has one address
    with place.up(), listening(relay, place.port, "127.0.0.2") as neighbour:
        word = place.state.running()
        assert word is not None
        url = f"http://127.0.0.2:{place.port}"
        planted(place.state.folder, url, pid=word.pid, token=word.token)
        quick(place, "hook")
    assert b"/_jackline/proof" in neighbour.received, "it was asked"
    assert word.token.encode() not in neighbour.received
    assert WORDS not in neighbour.received


def test_a_neighbour_cannot_keep_a_gateway_from_starting_by_holding_an_old_port(
    place: Place,
) -> None:
    with listening() as neighbour:
        planted(place.state.folder, neighbour.url)
        with place.up():
            assert place.jackline("status").code == 0
    got_nothing(neighbour)


def test_who_holds_the_port_puts_no_words_into_our_advice(place: Place) -> None:
    def lie(line: socket.socket, asked: bytes) -> None:
        del asked
        body = b'{"jackline": "1", "state": "/x; rm -rf evil", "process": 4711}'
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with listening(lie, place.port):
        done = place.jackline("up")
    assert done.code == 1
    assert "evil" not in done.err
    assert "4711" not in done.err
    assert f"port {place.port} is held by" in done.err


# --- a planted word -------------------------------------------------------------------------------

ADDRESSES = [
    "http://192.0.2.7:8766",
    "http://127.0.0.1@192.0.2.7:80",
    "http://127.0.0.1:80@192.0.2.7:80",
    "http://[::ffff:192.0.2.7]:80",
    "http://[::ffff:127.0.0.1]:80",
    "http://localhost.evil.example:80",
    "http://localhost.:80",
    "http://127.1:80",
    "http://0x7f.1:80",
    "http://0177.0.0.1:80",
    "http://2130706433:80",
    "http://127.0.0.1.:80",
    "http://127.0.0.256:80",
    "http://127.0.0.1:0",
    "http://127.0.0.1:-1",
    "http://127.0.0.1:65536",
    "http://127.0.0.1:08766",
    "http://127.0.0.1:٨٧",
    "http://127.0.0.١:80",
    "http://127.0.0.1:80/x",
    "http://127.0.0.1:80 ",
    "https://127.0.0.1:80",
    "http://127.0.0.1",
    "http://[::1%25evil]:80",
    "http://0.0.0.0:80",
    "http://:80",
    "",
]


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_that_no_gateway_of_this_machine_would_write_is_not_asked(
    url: str, tmp_path: Path
) -> None:
    planted(tmp_path / "state", url)
    assert find_service(["--state", str(tmp_path / "state")]) is None


@pytest.mark.parametrize("url", ["http://192.0.2.7:80", "http://127.0.0.1@192.0.2.7:80"])
def test_commands_go_to_no_other_machine(url: str, place: Place) -> None:
    planted(place.state.folder, url)
    done = place.jackline("status")
    assert done.code == 5
    assert "192.0.2.7" not in done.out


@pytest.mark.parametrize("token", ["", "a\\r\\nx-evil: 1", "a b", "ü", "x" * 5000, "a\r\nb"])
def test_a_token_that_no_gateway_would_make_is_not_sent(token: str, tmp_path: Path) -> None:
    planted(tmp_path / "state", "http://127.0.0.1:80", token=token)
    assert find_service(["--state", str(tmp_path / "state")]) is None
    assert StateDir(tmp_path / "state").running() is None


def test_a_pipe_in_the_place_of_the_word_keeps_nobody_waiting(place: Place) -> None:
    place.state.folder.mkdir(mode=0o700)
    os.mkfifo(place.state.folder / "gateway.json", 0o600)
    quick(place, "hook")
    done = place.jackline("status")
    assert done.code == 2
    assert "not a regular file" in done.err
    assert f"rm {place.state.folder / 'gateway.json'}" in done.err


def test_a_word_of_a_gigabyte_is_not_read(place: Place) -> None:
    path = planted(place.state.folder, "http://127.0.0.1:80")
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    try:
        assert find_service(["--state", str(place.state.folder)]) is None
        assert place.state.running() is None
    finally:
        path.unlink()


def mended(place: Place, done: Answer) -> None:
    """The advice of an error is followed to the letter, and helps."""
    assert done.code == 2, done.err
    fix = done.err.partition("hint:")[2].strip()
    fix = fix.rpartition("then: ")[2].rpartition("to keep it: ")[2]
    subprocess.run(["/bin/sh", "-c", fix], check=True)
    assert place.jackline("status").code == 5, "no gateway runs, and nothing else is wrong"


@pytest.mark.parametrize(
    ("verb", "mode"),
    [
        (("up",), 0o777),
        (("up", "-d"), 0o770),
        (("status",), 0o777),
        (("exec", "true"), 0o1777),
    ],
)
def test_a_state_folder_that_others_can_write_to_is_refused_with_a_fix_that_works(
    place: Place, verb: tuple[str, ...], mode: int
) -> None:
    place.state.folder.mkdir()
    place.state.folder.chmod(mode)
    done = place.jackline(*verb)
    assert f"{place.state.folder} can be written to by other users" in done.err
    assert list(place.state.folder.iterdir()) == []
    mended(place, done)


def test_nothing_is_told_to_a_gateway_of_a_folder_that_others_can_write_to(place: Place) -> None:
    with listening() as neighbour:
        planted(place.state.folder, neighbour.url)
        place.state.folder.chmod(0o777)
        quick(place, "hook")
        quick(place, "statusline")
        assert place.jackline("status").code == 2
    assert not neighbour.received


FILES = [
    *("gateway.json", "salt", "orders.json", "gateway.log", "journal.db", "flows.db"),
    *("flows.db-wal", "flows.db-journal", "journal.db-shm", "woken-runs.log", "connected.json"),
]


def plant(path: Path, how: str, victim: Path) -> None:
    """Put something in the place of a file of Jackline's."""
    victim.write_text("precious")
    victim.chmod(0o600)
    if how == "link":
        path.symlink_to(victim)
    elif how == "second name":
        path.hardlink_to(victim)
    elif how == "pipe":
        os.mkfifo(path, 0o600)
    elif how == "folder":
        path.mkdir()
    else:
        path.write_text("planted")
        path.chmod(0o666)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["link", "open", "second name", "pipe", "folder"])
def test_no_planted_file_is_used_and_the_advice_helps(name: str, how: str, tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    state.make()
    path = state.folder / name
    plant(path, how, tmp_path / "victim")
    with pytest.raises(UnsafeFileError) as refused:
        state.make()
    assert str(path) in refused.value.message
    fix = refused.value.hint.rpartition("then: ")[2].rpartition("to keep it: ")[2]
    subprocess.run(["/bin/sh", "-c", fix], check=True)
    state.make()
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "how"), [("gateway.log", "link"), ("flows.db", "pipe"), ("salt", "second name")]
)
def test_no_gateway_starts_with_a_planted_file(
    place: Place, name: str, how: str, tmp_path: Path
) -> None:
    place.state.make()
    plant(place.state.folder / name, how, tmp_path / "victim")
    done = place.jackline("up", "-d")
    assert (tmp_path / "victim").read_text() == "precious"
    assert str(place.state.folder / name) in done.err
    mended(place, done)


@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="needs root to give files away")
@pytest.mark.parametrize("name", ["", "gateway.json", "flows.db"])
def test_nothing_of_another_user_is_used(place: Place, name: str) -> None:
    path = place.state.folder / name
    place.state.make()
    if name:
        path.write_text("planted")
        path.chmod(0o600)
    os.chown(path, 12345, 12345)
    done = place.jackline("up", "-d")
    assert done.code == 2
    assert f"{path} belongs to another user" in done.err
    if name:
        mended(place, done)


def test_runs_are_not_read_from_a_store_that_somebody_else_can_have_written(place: Place) -> None:
    place.state.make()
    store = place.state.folder / "flows.db"
    store.touch(0o600)
    store.chmod(0o666)
    for verb in ("ls", "resources"):
        done = place.jackline(verb)
        assert done.code != 0
        assert f"chmod 600 {store}" in done.err


def test_what_an_older_version_left_open_to_read_is_closed_and_used(place: Place) -> None:
    place.state.folder.mkdir(mode=0o755)
    place.state.folder.chmod(0o755)
    (place.state.folder / "gateway.log").write_text("of before\n")
    (place.state.folder / "gateway.log").chmod(0o644)
    assert place.jackline("up", "-d").code == 0
    assert place.state.folder.stat().st_mode & 0o777 == 0o700
    assert place.state.log.stat().st_mode & 0o777 == 0o600
    assert place.state.log.read_text().startswith("of before\n")


def test_a_name_that_can_be_foretold_is_not_written_through(place: Place, tmp_path: Path) -> None:
    """Once a temporary file was named by the process number, which can be guessed."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    place.state.folder.mkdir(mode=0o700)
    for name in ("gateway.json", "salt", "orders.json"):
        (place.state.folder / f"{name}.{os.getpid()}.new").symlink_to(victim)
    place.state.salt()
    place.state.keep_orders(b"[]")
    place.state.tell_running(RunningGateway(1, "http://127.0.0.1:1", "u", "v", 1.0, "t"))
    assert victim.read_text() == "precious"


# --- the proof ------------------------------------------------------------------------------------


def asked_for_proof(place: Place, query: str, host: str = "", more: str = "") -> bytes:
    with socket.create_connection(("127.0.0.1", place.port), timeout=60) as line:
        host = host or f"127.0.0.1:{place.port}"
        head = f"GET /_jackline/proof{query} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n"
        line.sendall(f"{head}{more}\r\n".encode())
        received = b""
        while part := line.recv(65536):
            received += part
    return received


def test_a_proof_fits_its_nonce_and_nothing_else_and_pages_get_none(place: Place) -> None:
    nonce = "ab" * 32
    with place.up():
        first = asked_for_proof(place, f"?nonce={nonce}")
        assert first.startswith(b"HTTP/1.1 200")
        other = asked_for_proof(place, f"?nonce={'ac' * 32}")
        assert first.rpartition(b"\r\n")[2] != other.rpartition(b"\r\n")[2]
        signs = first.rpartition(b"\r\n")[2].decode()
        assert len(signs) == 64
        for bad in ("", "?nonce=", "?nonce=ab", f"?nonce={'g' * 64}", f"?nonce={'a' * 129}"):
            assert asked_for_proof(place, bad).startswith(b"HTTP/1.1 400"), bad
        for bad in (f"?nonce={nonce}&x=1", f"?x={nonce}", f"?nonce={nonce}%0a"):
            assert asked_for_proof(place, bad).startswith(b"HTTP/1.1 400"), bad
        foreign = asked_for_proof(place, f"?nonce={nonce}", host="evil.example")
        assert foreign.startswith(b"HTTP/1.1 403")
        page = asked_for_proof(place, f"?nonce={nonce}", more="origin: http://evil.example\r\n")
        assert page.startswith(b"HTTP/1.1 403")


def test_a_proof_is_no_signature_for_anything_else(place: Place) -> None:
    nonce = "ab" * 32
    with place.up():
        told = asked_for_proof(place, f"?nonce={nonce}").rpartition(b"\r\n")[2].decode()
    key = installation_key()
    address = socket_address(("127.0.0.1", place.port)).encode()
    assert is_signature(key, told, "gateway proof", nonce.encode(), address)
    for purpose in ("release command", "flow", "", "gateway"):
        assert not is_signature(key, told, purpose, nonce.encode(), address)
        assert not is_signature(key, told, purpose, nonce.encode())


def _drip(line: socket.socket, asked: bytes) -> None:
    del asked
    line.sendall(b"HTTP/1.1 200 OK\r\nx-more: ")
    while True:  # until whoever asked has left
        line.sendall(b"a")
        time.sleep(0.05)


def _flood(line: socket.socket, asked: bytes) -> None:
    del asked
    line.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        line.sendall(b"x-more: " + b"a" * 60_000 + b"\r\n")


def _said(answer: bytes) -> Trick:
    def say(line: socket.socket, asked: bytes) -> None:
        del asked
        line.sendall(answer)

    return say


def _reflect(line: socket.socket, asked: bytes) -> None:
    nonce = asked.partition(b"nonce=")[2].partition(b" ")[0]
    line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(nonce), nonce))


def _hang(line: socket.socket, asked: bytes) -> None:
    del line, asked


TRICKS: dict[str, Trick] = {
    "drip": _drip,
    "flood": _flood,
    "reflect": _reflect,
    "hang": _hang,
    "greet": greet,
    "huge length": _said(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n"),
    "two lengths": _said(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 64\r\n\r\na"),
    "unicode length": _said("HTTP/1.1 200 OK\r\nContent-Length: ٦٤\r\n\r\n".encode()),
    "chunked": _said(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n" + b"a" * 64),
    "garbage": _said(bytes(range(256)) * 40 + b"\r\n\r\n"),
    "unicode status": _said("HTTP/1.1 ٢٠٠ OK\r\nContent-Length: 0\r\n\r\n".encode()),
    "empty": _said(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "non-ascii": _said(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n" + b"\xe9" * 64),
    "continue": _said(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "redirect": _said(b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.7/\r\n\r\n"),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_of_a_listener_gets_a_word_or_keeps_a_client(trick: str) -> None:
    installation_key()
    with listening(TRICKS[trick]) as neighbour:
        word = ServiceInfo("", "127.0.0.1", neighbour.port, SECRET)
        assert word.ask("/_jackline/hook", PROMPT, seconds=1.0) is None
        until(lambda: neighbour.received, "the question")
    got_nothing(neighbour)


@pytest.mark.parametrize("trick", ["hang", "flood", "drip"])
def test_a_gateway_that_goes_bad_after_its_proof_is_left(trick: str) -> None:
    def behave(line: socket.socket, asked: bytes) -> None:
        if b"/_jackline/proof" not in asked:
            TRICKS[trick](line, asked)
            return
        told = proof_for(line, asked.partition(b"?")[2].partition(b" ")[0])
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))

    installation_key()
    with listening(behave) as gateway:
        word = ServiceInfo("", "127.0.0.1", gateway.port, SECRET)
        assert word.ask("/_jackline/hook", PROMPT, seconds=5.0) is None
        until(lambda: WORDS in gateway.received, "its being trusted")


def test_a_second_request_needs_a_second_proof_on_a_second_connection() -> None:
    """Whoever takes the port between two requests gets neither the token nor the words."""
    installation_key()
    proved: list[int] = []

    def behave(line: socket.socket, asked: bytes) -> None:
        if b"/_jackline/proof" in asked and not proved:
            proved.append(1)
            told = proof_for(line, asked.partition(b"?")[2].partition(b" ")[0])
            line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))
        else:
            greet(line, asked)
            line.shutdown(socket.SHUT_WR)

    with listening(behave) as gateway:
        word = ServiceInfo("", "127.0.0.1", gateway.port, SECRET)
        assert word.ask("/healthz", seconds=20.0) is not None
        assert word.ask("/_jackline/hook", PROMPT, seconds=20.0) is None
    assert WORDS not in gateway.received


def test_a_gateway_of_an_older_version_is_told_as_that_and_can_be_ended(place: Place) -> None:
    """It answers 404 for the proof, as every version before did."""
    script = (
        "import http.server, sys\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    protocol_version = 'HTTP/1.1'\n"
        "    def do_GET(self):\n"
        "        self.send_error(404)\n"
        "    do_POST = do_GET\n"
        "    def log_message(self, *a):\n"
        "        sys.stderr.write(str(self.headers))\n"
        "http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[3])), H).serve_forever()\n"
    )
    log = place.folder / "old.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-c", script, "jackline", "up", str(place.port)], stderr=errors
        ) as old,
    ):
        try:
            until(lambda: _listens(place.port), "the old gateway")
            planted(place.state.folder, place.url, pid=old.pid)
            # Whoever started it sees it end; else its number would stay taken.
            threading.Thread(target=old.wait, daemon=True).start()
            for verb in (("status",), ("exec", "true"), ("up",)):
                done = place.jackline(*verb)
                assert done.code == 5
                assert "older version" in done.err
                assert "jackline down, then jackline up -d" in done.err
            ended = place.jackline("down")
            assert (ended.code, "is being stopped" in ended.err) == (0, True), ended.err
            until(lambda: old.poll() is not None, "its end")
            assert old.returncode == -signal.SIGTERM
        finally:
            old.kill()
    assert SECRET not in log.read_text()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_down_ends_no_process_that_is_no_gateway(place: Place) -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as innocent, listening() as neighbour:
        try:
            planted(place.state.folder, neighbour.url, pid=innocent.pid)
            assert place.jackline("down").code == 0
            assert innocent.poll() is None
        finally:
            innocent.kill()
    got_nothing(neighbour)


def test_without_a_key_calls_are_served_and_commands_say_why_they_trust_nobody(
    tmp_path: Path,
) -> None:
    with SimulatedProvider() as provider:
        place = Place(tmp_path, provider.url)
        home = tmp_path / "no-home"
        home.write_text("a file where a folder should be")
        place.more |= {"XDG_STATE_HOME": str(home), "HOME": str(home), "LOCALAPPDATA": str(home)}
        with place.up() as gateway:
            assert call(place.url).status == 200
            assert "cannot prove that it is yours" in gateway.output
            for verb in (("status",), ("exec", "true")):
                done = place.jackline(*verb)
                assert done.code == 5
                assert "no installation key" in done.err
            with socket.create_connection(("127.0.0.1", place.port)):
                assert place.jackline("down").code == 0, "by its process"
            gateway.process.wait(60)
        behind = place.jackline("up", "-d")
        assert behind.code == 5
        assert "XDG_STATE_HOME" in behind.err


def test_a_gateway_that_stops_still_proves_itself(place: Place) -> None:
    with SimulatedProvider() as provider:
        provider.hang()
        place.upstream = provider.url
        with place.up() as gateway:
            Calling(place.url)
            until(lambda: provider.ledger.open == 1, "the call")
            gateway.interrupt()
            until(lambda: "Ctrl-C again" in gateway.output, "its stopping")
            assert place.jackline("status").code == 0
            gateway.interrupt()
            gateway.code()


# --- folders above the state folder ---------------------------------------------------------------

_needs_root = pytest.mark.skipif(
    sys.platform == "win32" or os.getuid() != 0, reason="only root gives folders away"
)
NOBODY = 65534


@_needs_root
@pytest.mark.parametrize("mode", [0o755, 0o700, 0o1777])
def test_a_folder_below_one_of_another_user_is_not_used(tmp_path: Path, mode: int) -> None:
    """Whoever owns a folder above can put another one in the place of what is below."""
    outer = tmp_path / "outer"
    StateDir(outer / "between" / "state").make()
    os.chown(outer, NOBODY, -1)
    outer.chmod(mode)
    with pytest.raises(UnsafeFileError, match="who owns"):
        StateDir(outer / "between" / "state").make()


@_needs_root
def test_a_folder_below_one_of_a_shared_group_is_not_used(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    state = StateDir(outer / "state")
    state.make()
    outer.chmod(0o775)
    state.make()  # a group of this user alone
    os.chown(outer, -1, NOBODY)
    with pytest.raises(UnsafeFileError, match="the group number 65534 may write") as refused:
        state.make()
    assert refused.value.hint is not None
    assert os.system(refused.value.hint) == 0  # noqa: S605 -- the advice must work as it stands
    state.make()
    outer.chmod(0o1775)  # whoever can write there moves only what is their own
    state.make()


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """As Linux keeps it: for each entry its kind, what it may, and whom it names."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in entries)


NO_ID = 0xFFFFFFFF
OWNER, GROUP, REST = (1, 7, NO_ID), (4, 5, NO_ID), (32, 5, NO_ID)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps access lists like that")
@pytest.mark.parametrize(
    ("entries", "who"),
    [
        ([(2, 7, NOBODY), GROUP, (16, 7, NO_ID)], "the user number 65534"),
        ([GROUP, (8, 7, NOBODY), (16, 7, NO_ID)], "the group number 65534"),
        ([(2, 7, NOBODY), GROUP, (16, 5, NO_ID)], None),  # the mask takes it away again
        ([(2, 5, NOBODY), (4, 7, NO_ID), (16, 7, NO_ID)], None),  # they may only read
        ([(2, 7, os.getuid() if sys.platform != "win32" else 0), GROUP, (16, 7, NO_ID)], None),
    ],
)
def test_a_folder_below_one_whose_access_list_lets_others_write_is_not_used(
    tmp_path: Path, entries: list[tuple[int, int, int]], who: str | None
) -> None:
    """Its mode shows no more than that a group may write, and that group is this user's own."""
    outer = tmp_path / "outer"
    state = StateDir(outer / "state")
    state.make()
    if sys.platform == "linux":
        os.setxattr(outer, "system.posix_acl_access", access_list(OWNER, *entries, REST))
    if who is None:
        state.make()
        return
    with pytest.raises(UnsafeFileError, match=f"{who} may write") as refused:
        state.make()
    assert refused.value.hint is not None
    assert os.system(refused.value.hint) == 0  # noqa: S605 -- the advice must work as it stands
    state.make()


@_needs_root
def test_a_path_through_a_link_of_another_user_is_not_used(tmp_path: Path) -> None:
    """The folder behind the link is fine today; tomorrow the link leads elsewhere."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    StateDir(own / "state").make()
    (shared / "link").symlink_to(own)
    shared.chmod(0o1777)
    state = StateDir(shared / "link" / "state")
    state.make()
    os.chown(shared / "link", NOBODY, -1, follow_symlinks=False)
    with pytest.raises(UnsafeFileError, match="by the link"):
        state.make()
    os.chown(shared / "link", 0, -1, follow_symlinks=False)
    shared.chmod(0o777)
    with pytest.raises(UnsafeFileError, match="everybody may write"):
        state.make()


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ("         0          0 4294967295\n", False),  # the machine itself: it is `nobody`
        ("      1000       1000          1\n", True),  # bubblewrap: root has no number there
        ("0 1000 1\n1 100000 65536\n", False),  # a rootless container: it is one of its users
    ],
)
def test_who_has_no_number_in_a_sandbox_is_not_another_user(known: str, expected: bool) -> None:
    assert _is_without_number(NOBODY, "65534\n", known) is expected
    assert not _is_without_number(1001, "65534\n", known)


# --- command lines, which every user of the machine can read --------------------------------------

# A browser that writes down what it was started with and where it was led, in that order.
BROWSER = """#!{python}
import sys, urllib.error, urllib.request
class Stop(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given):
        return None
with open({seen!r}, "a") as seen:
    print(sys.argv[1], file=seen)
    try:
        urllib.request.build_opener(Stop).open(sys.argv[1], timeout=60)
    except urllib.error.HTTPError as answer:
        print(answer.headers["location"], file=seen)
"""


def test_the_control_token_is_on_no_command_line(place: Place) -> None:
    seen, browser = place.folder / "seen", place.folder / "browser"
    browser.write_text(BROWSER.format(python=sys.executable, seen=str(seen)))
    browser.chmod(0o700)
    with place.up():
        running = place.state.running()
        assert running is not None
        place.more["BROWSER"] = f"{browser} %s &"
        opened = place.jackline("open")
        assert opened.code == 0, opened.err
        until(lambda: seen.exists() and seen.read_text().count("\n") == 2, "the browser")
        begun, led = seen.read_text().splitlines()
        assert running.token not in begun
        assert led == f"{running.url}/#token={running.token}"
        # It led there once, and nobody listens there any more.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(begun.split(":")[2].split("/")[0])))
