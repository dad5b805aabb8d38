"""`jackline config`, as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import warm_processes
from tests.cli.commands import Answer, jackline

PLANTED = "planted-secret-0123456789"


def config(tmp_path: Path, *arguments: str, **variables: str) -> Answer:
    """Run it with a home of its own, and the file under test named."""
    home = str(tmp_path / "home")
    return jackline(
        "config",
        *arguments,
        env={"HOME": home, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home, **variables},
    )


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "named.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_show_prints_a_file_that_could_be_used(tmp_path: Path) -> None:
    path = written(tmp_path, "[hold]\nquota = 3600\n")
    answer = config(tmp_path, "show", JACKLINE_CONFIG=path)
    assert (answer.code, answer.err) == (0, "")
    document = tomllib.loads(answer.out)
    assert document["hold"]["quota"] == "1h"
    assert document["upstream"][0]["url"] == "https://api.anthropic.com"


def test_show_origin_names_the_source_of_each_value(tmp_path: Path) -> None:
    path = written(tmp_path, "[hold]\nquota = 3600\n")
    answer = config(tmp_path, "show", "--origin", JACKLINE_CONFIG=path, JACKLINE_PORT="9000")
    assert f'quota = "1h"  # {path}:2' in answer.out
    assert "port = 9000  # JACKLINE_PORT" in answer.out
    assert 'level = "info"  # default' in answer.out


def test_show_json_is_one_document(tmp_path: Path) -> None:
    path = written(tmp_path, "[listen]\ntoken = 'env:KEPT'\n")
    answer = config(tmp_path, "show", "--json", JACKLINE_CONFIG=path, KEPT=PLANTED)
    document = json.loads(answer.out)
    assert document["schema"] == "jackline.config/1"
    assert document["files"] == [path]
    assert document["settings"]["listen.token"] == "env:KEPT"
    assert document["origins"]["listen.token"] == f"{path}:2"
    assert PLANTED not in answer.out


def test_show_follows_no_reference(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    path = written(tmp_path, f"[listen]\ntoken = 'cmd:touch {witness}'\n")
    assert config(tmp_path, "show", JACKLINE_CONFIG=path).code == 0
    assert not witness.exists()


def test_check_lists_all_faults_and_leaves_with_2(tmp_path: Path) -> None:
    path = written(tmp_path, "strem = 'live'\n[listen]\nport = 'x'\n")
    answer = config(tmp_path, "check", JACKLINE_CONFIG=path)
    assert (answer.code, answer.out) == (2, "")
    assert f"{path}:1: strem: there is no such key; did you mean stream?" in answer.err
    assert f"{path}:3: listen.port: must be a whole number" in answer.err
    assert "hint:" in answer.err
    document = json.loads(config(tmp_path, "check", "--json", JACKLINE_CONFIG=path).out)
    assert (document["good"], len(document["faults"])) == (False, 2)


def test_a_file_can_be_named_as_for_every_other_verb(tmp_path: Path) -> None:
    path = written(tmp_path, "[hold]\nquota = 3600\n")
    assert f'quota = "1h"  # {path}:2' in config(tmp_path, "show", "--origin", "--config", path).out
    assert config(tmp_path, "check", "--config", path).out == f"good: {path}\n"


def test_check_looks_up_secrets_and_never_prints_them(tmp_path: Path) -> None:
    path = written(tmp_path, "[listen]\ntoken = 'env:KEPT'\n")
    missing = config(tmp_path, "check", JACKLINE_CONFIG=path)
    assert missing.code == 2
    assert "the environment variable KEPT is not set" in missing.err
    for arguments in (("check",), ("check", "--json")):
        answer = config(tmp_path, *arguments, JACKLINE_CONFIG=path, KEPT=PLANTED)
        assert answer.code == 0
        assert PLANTED not in answer.out + answer.err


def test_path_says_which_files_are_read_or_where_ones_own_would_be(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    assert config(tmp_path, "path", JACKLINE_CONFIG=path).out.strip() == path
    document = json.loads(config(tmp_path, "path", "--json", JACKLINE_CONFIG=path).out)
    assert document["files"] == [path]
    assert document["user_file"].endswith("jackline.toml")


@pytest.mark.skipif(sys.platform != "linux", reason="the folder is named by a variable only there")
def test_ones_own_file_is_found_where_the_system_keeps_it(tmp_path: Path) -> None:
    own = tmp_path / "home" / "jackline" / "jackline.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[listen]\nport = 1234\n")
    answer = warm_processes.run(
        [sys.executable, "-m", "jackline", "config", "show", "--origin"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"port = 1234  # {own}:2" in answer.stdout
    assert f'state = "{tmp_path}/.local/state/jackline"  # default' in answer.stdout


def test_schema_is_json_for_editors(tmp_path: Path) -> None:
    document = json.loads(config(tmp_path, "schema").out)
    assert document["title"] == "jackline.toml"
    assert document["additionalProperties"] is False


def test_help_does_not_load_the_validator() -> None:
    code = (
        "import sys; from jackline.cli.main import run;"
        "run(['--help']); run(['config', '--help']); run(['config', 'show', '--help']);"
        "sys.exit('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0
