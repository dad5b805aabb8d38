"""Start what is measured before the upstream, and find out that it really answers.

Rules: (1) a subject is measured only after it gave a whole answer, streamed and not; (2) one that
does not is left out with what it said.
Not here: how it is installed (peers.py), the measuring itself (rounds.py).
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gateway_bench.children import Children, Cores, free_port, wait_until
from gateway_bench.framing import FramingError, Message
from gateway_bench.peer import KEY, Launch, MissingError, Peer
from gateway_bench.traffic import SMALL, body_text, build, is_whole

HERE = Path(__file__).parents[1]
ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that answers on a port, and the process that does it."""

    name: str
    version: str
    port: int
    child: subprocess.Popen[bytes]
    key: str = KEY
    headers: tuple[tuple[str, str], ...] = ()


def own_program(module: str, *arguments: str) -> list[str]:
    """The command of one of the bench's own programs."""
    return [sys.executable, "-m", f"gateway_bench.{module}", *arguments]


def start_upstream(children: Children, cores: Cores, state: Path, *extra: str) -> Subject:
    """The upstream, which is also what `direct` is measured on."""
    port = free_port()
    command = own_program("upstream", "--port", str(port), *extra)
    child = children.start(command, cores.others, state / "upstream.log", {"PYTHONPATH": str(HERE)})
    if not wait_until(lambda: _listens(port), 20.0, child):
        raise MissingError(f"the upstream did not start: {_last_words(state / 'upstream.log')}")
    return Subject("direct", "", port, child)


def start_subject(
    peer: Peer,
    upstream: Subject,
    children: Children,
    cores: Cores,
    state: Path,
    *,
    ask_streams: bool = True,
) -> Subject:
    """The peer, running and answering; or a `MissingError`."""
    port = free_port()
    own = state / peer.name
    own.mkdir()
    launch = peer.launch(port, upstream.port, own)
    log = state / f"{peer.name}.log"
    child = children.start(launch.command, cores.measured, log, launch.env)
    if not wait_until(lambda: _listens(port), launch.seconds, child):
        children.stop(child)
        raise MissingError(f"did not start: {_last_words(log)}")
    for stream in (False, True) if ask_streams else (False,):
        said = _first_answer(port, launch, stream=stream)
        if said:
            children.stop(child)
            raise MissingError(f"does not answer (stream={stream}): {said}")
    return Subject(peer.name, peer.version(), port, child, launch.key, launch.headers)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def _first_answer(port: int, launch: Launch, *, stream: bool) -> str:
    """Empty when it answers within its time; else what it said instead."""
    give_up = time.monotonic() + launch.seconds
    while True:
        said = ask(port, launch, stream=stream)
        if not said or time.monotonic() > give_up:
            return said
        time.sleep(0.5)


def ask(port: int, launch: Launch, *, stream: bool) -> str:
    """Send one request: empty when the answer is whole, else what came instead."""
    body = body_text(SMALL, stream=stream)
    request = build(body, port=port, session="bench", key=launch.key, extra=launch.headers)
    message = Message()
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as connection:
            connection.sendall(b"".join(request.numbered(time.monotonic_ns() % 10**10)))
            while not message.complete_with(data := connection.recv(65_536)):
                if not data:
                    return "closed the connection"
    except (OSError, FramingError) as wrong:
        return str(wrong)
    if is_whole(message.whole, stream=stream):
        return ""
    return message.whole[:400].decode("utf-8", "replace")


def _last_words(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "without a word"
