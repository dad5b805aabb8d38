"""Another user takes the gateway's port while runs and their programs are at work."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.agents.gateway_model import GatewayModel
from jackline.agents.runner import JsonObject, ModelCaller, ModelFailedError
from jackline.private_files import installation_key
from jackline.simulator.reply_script import Say
from jackline.testing import Rule
from jackline.upstream import Origin
from jackline.upstream.origin import own_gateway
from tests.attacks.listener import Listener, listening
from tests.attacks.test_neighbour import TRICKS
from tests.cli.flow_world import PATIENCE, World, flow_world
from tests.cli.gateways import until
from tests.ports import free_port
from tests.proving import proof_for

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent as POSIX knows them")

TOKEN = "the-listen-token-0123456789"  # noqa: S105 -- planted, to be looked for
QUESTION = re.compile(
    rb"GET /_jackline/proof\?nonce=[0-9a-f]{64} HTTP/1\.1\r\nhost: [0-9.:]+\r\n\r\n"
)
# It calls until it is ended, by itself and by a child that has left its group.
PROGRAM = """#!{python}
import json, os, signal, subprocess, sys, time, urllib.request
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if not os.environ.get("IS_CHILD"):
    child = dict(os.environ, IS_CHILD="1")
    started = subprocess.Popen([sys.executable, __file__], env=child, start_new_session=True)
    with open({seen!r} + ".part", "w") as file:
        json.dump([os.getpid(), started.pid, os.environ["ANTHROPIC_BASE_URL"]], file)
    os.rename({seen!r} + ".part", {seen!r})
body = json.dumps(dict(model="claude-sonnet-4-6", max_tokens=9, stream=False,
                       messages=[dict(role="user", content="the private words 7")])).encode()
headers = {{"content-type": "application/json", "x-api-key": os.environ["ANTHROPIC_API_KEY"]}}
for line in os.environ["ANTHROPIC_CUSTOM_HEADERS"].splitlines():
    name, _, value = line.partition(":")
    headers[name] = value.strip()
while True:
    try:
        url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
        urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60).read()
    except OSError:
        pass
    time.sleep(0.005)
"""
PROGRAM_FLOW = """
from jackline import agent, flow

@flow
async def one() -> str:
    return (await agent("the private words", label="one", runner="claude-code")).text
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with flow_world(tmp_path) as there:
        there.more |= {"JACKLINE_PORT": str(free_port()), "JACKLINE_LIMITS_DRAIN": "0.1s"}
        (tmp_path / "token").write_text(TOKEN)
        (tmp_path / "token").chmod(0o600)
        there.more["JACKLINE_LISTEN_TOKEN"] = f"file:{tmp_path / 'token'}"
        yield there


@contextmanager
def taken(port: int) -> Iterator[Listener]:
    """The port in the hands of somebody else, from the first moment at which it is free."""
    found: list[Listener] = []

    def is_taken() -> bool:
        with suppress(OSError):
            found.append(stack.enter_context(listening(port=port)))
        return bool(found)

    with ExitStack() as stack:
        until(is_taken, "the port's being free")
        yield found[0]


def end_gateway(world: World, how: str) -> int:
    """Its port, which nobody holds any more."""
    word = json.loads((world.folder / "state" / "gateway.json").read_text())
    if how == "killed":
        os.kill(word["pid"], signal.SIGKILL)
    else:
        assert world.jackline("down")[0] == 0
    return int(word["url"].rpartition(":")[2])


def only_asked_for_proof(listener: Listener) -> None:
    """It was asked to prove itself, and got nothing else."""
    assert not QUESTION.sub(b"", bytes(listener.received)), "more was sent than the question"


# --- calls of our own -----------------------------------------------------------------------------


def begin(world: World, verb: str) -> subprocess.Popen[str]:
    """A process of this verb whose call waits for an answer that does not come."""
    provider = world.provider
    if verb == "resume --failed":
        provider.says(Rule(Say("I can't help with that.", stop="refusal")))
        assert world.jackline("run", "flow.py", "--count", "1")[0] == 3
        provider.says(Rule(Say("0")))
    provider.hang()
    words = ["run", "flow.py", "--count", "1"]
    if verb == "resume":
        with world.start(*words) as first:
            until(lambda: provider.ledger.open == 1, "its call")
            first.kill()
        until(lambda: provider.ledger.open == 0, "the end of its call")
    if verb != "run":
        words = [*verb.split(), world.json("ls")["runs"][0]["run"]]
    process = world.start(*words)
    until(lambda: provider.ledger.open == 1, "the call")
    return process


@pytest.mark.parametrize(
    ("verb", "how"),
    [("run", "killed"), ("run", "stopped"), ("resume", "killed"), ("resume --failed", "killed")],
)
def test_who_takes_the_port_of_a_dead_gateway_gets_nothing_from_a_run(
    world: World, verb: str, how: str
) -> None:
    with begin(world, verb) as process:
        with taken(end_gateway(world, how)) as neighbour:
            until(lambda: neighbour.received.count(b"/proof") >= 2, "its being asked twice")
        only_asked_for_proof(neighbour)
        world.provider.heal()
        if how == "stopped":
            assert world.jackline("up", "-d")[0] == 0
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out.strip()) == (0, "1 of 1 ok: 0"), err
    assert "did not prove to be your gateway" in err


async def failure_of_a_call(origin: Origin, *, patience: float) -> ModelFailedError:
    secrets = (("x-api-key", "sk-ant-key"), ("x-jackline-token", TOKEN))
    async with GatewayModel(origin, headers=secrets, patience=patience) as model:
        body: JsonObject = {"model": "m", "max_tokens": 9, "messages": []}
        with pytest.raises(ModelFailedError) as failed:
            await model.ask(body, ModelCaller("session", "task", "run"))
    return failed.value


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_gets_more_than_the_question_from_a_call(trick: str) -> None:
    installation_key()
    with listening(TRICKS[trick]) as neighbour:
        # Only who does not answer is waited for.
        origin = replace(own_gateway(neighbour.url), connect_seconds=1.0)
        failed = event_loop.run(failure_of_a_call(origin, patience=0.0))
    only_asked_for_proof(neighbour)
    assert neighbour.received
    assert failed.failure.retry_same, "as for a gateway that is gone"


def test_who_has_the_port_is_named_when_patience_is_over() -> None:
    installation_key()
    with listening() as neighbour:
        failed = event_loop.run(failure_of_a_call(own_gateway(neighbour.url), patience=0.3))
    only_asked_for_proof(neighbour)
    words = f"The model call was not sent: the program at 127.0.0.1:{neighbour.port} did not prove"
    assert failed.evidence.says.startswith(words)


def test_a_connection_that_is_kept_was_proved_and_a_second_one_is_proved_again() -> None:
    installation_key()
    proofs: list[int] = []

    def behave(line: socket.socket, asked: bytes) -> None:
        if b"/_jackline/proof" not in asked or proofs:
            line.shutdown(socket.SHUT_RDWR)  # the gateway goes: whoever comes next is another one
            return
        proofs.append(1)
        told = proof_for(line, asked.partition(b"?")[2].partition(b" ")[0])
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))

    with listening(behave) as neighbour:
        event_loop.run(failure_of_a_call(own_gateway(neighbour.url), patience=0.5))
    assert neighbour.received.count(b"POST /t/run/v1/messages") == 1
    assert neighbour.received.count(b"/_jackline/proof") > 1


# --- programs -------------------------------------------------------------------------------------


def command_line(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@contextmanager
def running_program(world: World) -> Iterator[tuple[subprocess.Popen[str], int, int, str]]:
    """A run whose agent's program calls again and again; its processes, and the address it has."""
    tools, seen = world.folder / "bin", world.folder / "seen"
    tools.mkdir()
    program = tools / "claude"
    program.write_text(PROGRAM.format(python=sys.executable, seen=str(seen)))
    program.chmod(0o755)
    (world.folder / "flow.py").write_text(PROGRAM_FLOW)
    world.more["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    world.more["HOME"] = str(world.folder)
    with world.start("run", "flow.py") as process:
        until(seen.exists, "the program")
        pid, child, url = json.loads(seen.read_text())
        try:
            until(lambda: len(world.provider.ledger), "its calls")
            yield process, pid, child, url
        finally:
            process.kill()
            until(lambda: not is_running(pid), "its end")
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_who_takes_the_port_of_a_dead_gateway_gets_nothing_from_a_program(
    world: World, how: str
) -> None:
    with running_program(world) as (_process, pid, _child, _url):
        with taken(end_gateway(world, how)) as neighbour:
            until(lambda: neighbour.received, "its being asked")
            only_asked_for_proof(neighbour)
        if how == "stopped":
            assert world.jackline("up", "-d")[0] == 0
        before = len(world.provider.ledger)
        until(lambda: len(world.provider.ledger) > before, "calls through the next gateway")
        assert is_running(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere environments are hidden")
def test_nobody_gets_the_port_that_a_program_calls_before_it_and_its_children_are_gone(
    world: World,
) -> None:
    with running_program(world) as (process, pid, child, url):
        port = int(url.split("/")[2].rpartition(":")[2])
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (guard,) = [each for each in children if b"/bin/sh" in command_line(each)]
        # However late it comes to end them.
        os.kill(int(guard), signal.SIGSTOP)
        try:
            process.kill()
            process.wait()
            with pytest.raises(OSError, match="in use"):
                socket.create_server(("127.0.0.1", port))
            assert is_running(pid)
            assert is_running(child)
        finally:
            os.kill(int(guard), signal.SIGCONT)
        with taken(port) as neighbour:
            assert not is_running(pid)
            assert not is_running(child)
        assert not neighbour.received
