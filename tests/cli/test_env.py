"""`jackline env` prints lines that the shell they are for can run."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.assembly import RunningGateway, StateDir
from jackline.cli.env import assignment, gateway_url, guess_shell
from jackline.errors import BadArgumentError
from jackline.gateway.settings import ListenSettings
from jackline.private_files import installation_key
from tests.cli.commands import jackline
from tests.proving import proof_for

# What an environment variable can hold.
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
CLEAN = {"PSModulePath": "", "SHELL": "/bin/bash", "JACKLINE_STATE": "/there/is/none"}


def bash() -> str:
    found = shutil.which("bash")
    assert found, "these tests need bash"
    return found


@settings(max_examples=25)
@given(VALUES)
def test_bash_sets_exactly_the_value(value: str) -> None:
    script = f'{assignment("bash", "X", value)}\nprintf %s "$X"'
    done = subprocess.run([bash(), "-c", script], capture_output=True, check=True)
    assert done.stdout.decode() == value


@given(VALUES)
def test_fish_reads_single_quotes_back(value: str) -> None:
    line = assignment("fish", "X", value)
    inside = line.removeprefix("set -gx X '").removesuffix("'")
    read = []
    marks = iter(inside)
    for mark in marks:  # inside single quotes fish knows \\ and \' and nothing else
        assert mark != "'"
        read.append(next(marks) if mark == "\\" else mark)
    assert "".join(read) == value


@given(VALUES)
def test_powershell_reads_doubled_quotes_back(value: str) -> None:
    line = assignment("powershell", "X", value)
    inside = line.removeprefix("$env:X = '").removesuffix("'")
    read = []
    marks = iter(inside)
    for mark in marks:  # any single quote, typographic ones too, counts only when doubled
        read.append(mark)
        if mark in "'‘’‚‛":
            assert next(marks) == mark
    assert "".join(read) == value


def test_the_lines_work_in_bash_as_the_help_says(tmp_path: Path) -> None:
    answer = jackline("env", "--afk", env={**CLEAN, "ANTHROPIC_CUSTOM_HEADERS": "A: it's\nB: $x"})
    assert answer.code == 0
    lines = tmp_path / "lines"
    lines.write_text(answer.out)
    script = f'eval "$(cat {lines})"; printf %s "$ANTHROPIC_CUSTOM_HEADERS|$ANTHROPIC_BASE_URL"'
    done = subprocess.run([bash(), "-c", script], capture_output=True, check=True)
    assert done.stdout.decode() == (
        "A: it's\nB: $x\nx-jackline-hold: until-reset|http://127.0.0.1:8766"
    )


def test_it_follows_the_configured_port_and_the_flag() -> None:
    by_variable = jackline("env", env={**CLEAN, "JACKLINE_PORT": "9001"})
    assert "export ANTHROPIC_BASE_URL=http://127.0.0.1:9001\n" in by_variable.out
    by_flag = jackline("env", "--port", "9002", env={**CLEAN, "JACKLINE_PORT": "9001"})
    assert "export ANTHROPIC_BASE_URL=http://127.0.0.1:9002\n" in by_flag.out


class _Gateway(BaseHTTPRequestHandler):
    """Answers as a gateway does when a client requests a proof of who it is."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b'{"jackline": "0"}'
        if self.path.startswith("/_jackline/proof?"):
            body = proof_for(self.connection, self.path.partition("?")[2].encode())
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_it_points_to_the_gateway_that_runs_unless_a_port_is_set(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Gateway) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            installation_key()
            StateDir(tmp_path).tell_running(RunningGateway(1, url, "", "0", 0.0, "made-up"))
            env = {**CLEAN, "JACKLINE_STATE": str(tmp_path)}
            assert f"export ANTHROPIC_BASE_URL={url}\n" in jackline("env", env=env).out
            output = jackline("env", "--port", "9003", env=env).out
        finally:
            server.shutdown()
            thread.join()
    assert "export ANTHROPIC_BASE_URL=http://127.0.0.1:9003\n" in output
    gone = jackline("env", env=env).out
    assert "export ANTHROPIC_BASE_URL=http://127.0.0.1:8766\n" in gone


def test_a_token_is_spoken_of_and_never_printed() -> None:
    planted = "planted-secret-0123456789"
    env = {**CLEAN, "JACKLINE_LISTEN_TOKEN": "env:KEPT", "KEPT": planted}
    answer = jackline("env", env=env)
    assert "x-jackline-token" in answer.err
    assert planted not in answer.out + answer.err


def test_json_is_one_document() -> None:
    document = json.loads(jackline("env", "--json", "--shell", "fish", env=CLEAN).out)
    assert document["schema"] == "jackline.env/1"
    assert document["shell"] == "fish"
    assert document["variables"]["API_FORCE_IDLE_TIMEOUT"] == "0"


@pytest.mark.parametrize(
    ("environ", "windows", "shell"),
    [
        ({"SHELL": "/usr/bin/zsh"}, False, "zsh"),
        ({"SHELL": "/opt/bin/fish"}, False, "fish"),
        ({"SHELL": "/bin/dash"}, False, "bash"),
        ({}, False, "bash"),
        ({"SHELL": "/bin/zsh", "PSModulePath": "/x"}, False, "powershell"),
        ({"PSModulePath": "C:\\x"}, True, "powershell"),
        ({}, True, "powershell"),
        ({"PSModulePath": "C:\\x", "SHELL": "C:\\Git\\usr\\bin\\bash.exe"}, True, "bash"),
        ({"PSModulePath": "C:\\x", "SHELL": "/usr/bin/fish"}, True, "fish"),
    ],
)
def test_the_shell_is_guessed(environ: dict[str, str], windows: bool, shell: str) -> None:
    assert guess_shell(environ, windows=windows) == shell


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("localhost", "http://localhost:1"),
        ("::1", "http://[::1]:1"),
        ("::", "http://[::1]:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),  # noqa: S104 -- not listened on
    ],
)
def test_the_address_is_one_that_a_client_here_can_reach(host: str, url: str) -> None:
    assert gateway_url(ListenSettings(host=host, port=1)) == url


def test_a_free_port_has_no_address_yet() -> None:
    with pytest.raises(BadArgumentError, match="any free one"):
        gateway_url(ListenSettings(port=0))
