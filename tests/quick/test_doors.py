"""The quick doors open at once, fail open, and know the same service as the whole configuration."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.assembly import RunningGateway, StateDir
from jackline.config import place_of_service
from jackline.private_files import default_config_folder, default_state_folder, installation_key
from jackline.quick.hook import DOWN, NOTICE
from jackline.quick.service import ServiceInfo, find_service, state_folder
from tests.proving import prove_first

NOBODY = ServiceInfo("", "127.0.0.1", 9, "t")


def jackline(
    *arguments: str, folder: Path, told: bytes = b"{}"
) -> subprocess.CompletedProcess[bytes]:
    environ = {**os.environ, "JACKLINE_STATE": str(folder)}
    command = [sys.executable, "-m", "jackline", *arguments]
    return subprocess.run(command, input=told, capture_output=True, env=environ, check=False)


def test_the_default_folder_is_the_one_that_platformdirs_tells() -> None:
    told = platformdirs.user_state_path("jackline", appauthor=False)
    assert Path(default_state_folder()) == told


@pytest.mark.parametrize("project", ["jackline.toml", "pyproject.toml"])
def test_the_folder_comes_from_flag_variable_or_the_users_file_never_from_a_project(
    project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, inner = tmp_path / "home", tmp_path / "a" / "b"
    for folder in (home / "jackline", inner):
        folder.mkdir(parents=True)
    planted = 'state = "planted"\n[tool.jackline]\nstate = "planted"\n'
    (inner / project).write_text(planted)
    (inner.parent / project).write_text(planted)
    monkeypatch.delenv("JACKLINE_STATE", raising=False)
    monkeypatch.delenv("JACKLINE_CONFIG", raising=False)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.chdir(inner)
    assert state_folder([]) == default_state_folder()
    (Path(default_config_folder()) / "jackline.toml").write_text('state = "kept"\n')
    assert Path(state_folder([])) == Path(default_config_folder()) / "kept"
    monkeypatch.setenv("JACKLINE_CONFIG", project)
    assert Path(state_folder([])) == inner / "planted"  # named by the user, so the user's word
    monkeypatch.setenv("JACKLINE_STATE", "set")
    assert Path(state_folder([])) == inner / "set"
    assert Path(state_folder(["--state", "given"])) == inner / "given"


STATES = st.sampled_from(
    ['"kept"', '"../up"', '"~/mine"', '"/abs/x"', '""', "3", "[", '"a/./b//c"', '"\\u0061"', "'~'"]
)
KEYS = st.sampled_from(["state", '"state"', '"st\\u0061te"', "stat", "x.state"])
MORE = st.sampled_from(["", "[hold]\nquota = 'x'\n", "[nope]\n", "\r\n# jackline\r\n", "=\n"])
TEXTS = st.none() | st.tuples(KEYS, STATES, MORE)


def put(path: Path, said: tuple[str, str, str] | None) -> None:
    if said is None:
        path.unlink(missing_ok=True)
        return
    key, state, more = said
    head = "[tool.jackline]\n" if path.name == "pyproject.toml" else ""
    path.write_bytes(f"{head}{key} = {state}\n{more if not head else ''}".encode())


@given(
    flag=st.sampled_from([None, "given", "~/given", "/given/./x"]),
    variable=st.sampled_from([None, "", " ", "set", " ~/set ", "/set"]),
    name=st.sampled_from([None, "", "named.toml", "sub/pyproject.toml", "~/named.toml", "gone"]),
    own=TEXTS,
    named=TEXTS,
    project=TEXTS,
)
def test_the_quick_doors_and_the_whole_configuration_agree_on_the_folder(
    tmp_path_factory: pytest.TempPathFactory,
    flag: str | None,
    variable: str | None,
    name: str | None,
    own: tuple[str, str, str] | None,
    named: tuple[str, str, str] | None,
    project: tuple[str, str, str] | None,
) -> None:
    root = tmp_path_factory.getbasetemp() / "agree"
    home, here = root / "home", root / "here"
    (here / "sub").mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for each in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "LOCALAPPDATA"):
            patch.setenv(each, str(home))
        for each, text in (("JACKLINE_STATE", variable), ("JACKLINE_CONFIG", name)):
            patch.delenv(each, raising=False)
            if text is not None:
                patch.setenv(each, text)
        patch.chdir(here)
        Path(default_config_folder()).mkdir(parents=True, exist_ok=True)
        put(Path(default_config_folder()) / "jackline.toml", own)
        for each in ("named.toml", "sub/pyproject.toml"):
            put(here / each, named)
        put(home / "named.toml", named)
        put(here / "jackline.toml", project)
        arguments = [] if flag is None else ["--state", flag]
        place = place_of_service(flags={"state": flag}, environ=os.environ, cwd=here)
        assert Path(state_folder(arguments)) == place.state_dir


@pytest.mark.parametrize("text", ["state = 1", "tool = 1 # jackline state", "state = [", "\xff"])
def test_a_file_that_makes_no_sense_says_nothing(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JACKLINE_STATE", raising=False)
    monkeypatch.setenv("JACKLINE_CONFIG", str(tmp_path / "pyproject.toml"))
    (tmp_path / "pyproject.toml").write_bytes(text.encode("latin-1"))
    assert state_folder([]) == default_state_folder()


def test_the_word_that_a_gateway_leaves_is_understood(tmp_path: Path) -> None:
    StateDir(tmp_path).tell_running(RunningGateway(1, "http://[::1]:8766", "u", "v", 1.0, "secret"))
    word = find_service(["--state", str(tmp_path)])
    assert word is not None
    assert (word.host, word.port, word.token) == ("::1", 8766, "secret")
    (tmp_path / "gateway.json").write_text("{}")
    assert find_service(["--state", str(tmp_path)]) is None


def test_who_never_answers_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        word = ServiceInfo("", "127.0.0.1", silent.getsockname()[1], "t")
        assert word.ask("/", seconds=0.05) is None
    assert NOBODY.ask("/", seconds=5) is None


@pytest.mark.parametrize(
    ("answer", "received"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", None),
        (b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nok", None),
        (b"HTTP/1.1 200 OK\r\nContent-Le", None),
        (b"", None),
    ],
)
def test_only_a_whole_answer_counts(answer: bytes, received: bytes | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line:
                prove_first(line)
                line.recv(65536)
                line.sendall(answer)

        installation_key()
        thread = threading.Thread(target=serve)
        thread.start()
        word = ServiceInfo("", "127.0.0.1", server.getsockname()[1], "t")
        assert word.ask("/x", b"{}", seconds=10) == received
        thread.join()


def test_a_hook_without_a_service_tells_it_once_and_never_blocks(tmp_path: Path) -> None:
    first = jackline("hook", folder=tmp_path / "state")
    assert first.returncode == 0
    assert "jackline up" in json.loads(first.stdout)["systemMessage"]
    second = jackline("hook", folder=tmp_path / "state")
    assert (second.returncode, second.stdout, second.stderr) == (0, b"", b"")
    assert (tmp_path / "state" / NOTICE).exists()


def test_a_service_that_hangs_is_waited_for_once_and_then_hardly_at_all(tmp_path: Path) -> None:
    installation_key()  # without one nobody is asked anything
    with socket.create_server(("127.0.0.1", 0)) as hung:
        url = f"http://127.0.0.1:{hung.getsockname()[1]}"
        StateDir(tmp_path).tell_running(RunningGateway(1, url, "u", "v", 1.0, "secret"))

        def seconds() -> float:
            began = time.monotonic()
            assert jackline("hook", folder=tmp_path).returncode == 0
            return time.monotonic() - began

        # The first waits for 3.5 s, all others for 0.3; a machine that stands still in some of them
        # does not do so in each.
        first = seconds()
        assert any(first - seconds() > 1.5 for _ in range(6))


def test_a_service_that_answers_again_is_waited_for_again_and_missed_again(tmp_path: Path) -> None:
    installation_key()
    jackline("hook", folder=tmp_path)
    assert (tmp_path / NOTICE).exists()
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        StateDir(tmp_path).tell_running(RunningGateway(1, url, "u", "v", 1.0, "secret"))

        def serve() -> None:
            while (tmp_path / NOTICE).exists():
                line, _ = server.accept()
                with line, suppress(ConnectionError, AssertionError):  # it may not have waited
                    prove_first(line)
                    line.recv(65536)
                    line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        # It is waited for no more than 0.3 s until it has answered once, which a busy machine may
        # take longer for.
        for _ in range(20):
            assert jackline("hook", folder=tmp_path).stdout == b""
            if not (tmp_path / NOTICE).exists():
                break
        socket.create_connection(server.getsockname()).close()  # so that nobody waits for another
        thread.join(60)
    assert not (tmp_path / NOTICE).exists()
    assert b"jackline up" in jackline("hook", folder=tmp_path).stdout


def test_a_status_line_without_a_service_shows_the_way_back(tmp_path: Path) -> None:
    told = jackline("statusline", folder=tmp_path)
    assert (told.returncode, told.stdout.decode().strip()) == (0, DOWN)


@pytest.mark.parametrize("verb", ["hook", "statusline"])
def test_a_quick_verb_loads_nothing_but_the_standard_library(verb: str, tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "jackline", verb, "--state", str(tmp_path)],
        input=b"{}",
        capture_output=True,
        check=True,
    )
    loaded = {line.rpartition(b"|")[2].strip().decode() for line in told.stderr.splitlines()}
    assert "jackline.quick.service" in loaded
    heavy = {"click", "msgspec", "pydantic", "asyncio", "http.client", "pathlib", "subprocess"}
    heavy |= {"socket", "selectors", "json", "re"}
    # An editable install brings its own finder; what that loads is not ours.
    own = {name for name in loaded if name.startswith("jackline")}
    assert all(
        name.startswith(("jackline.quick", "jackline.__main__", "jackline.private_files"))
        or name
        in ("jackline", "jackline.gateway_proof", "jackline.local_address", "jackline.programs")
        for name in own
    )
    assert not heavy - {"pathlib"} & loaded
