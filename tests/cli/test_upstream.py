"""`jackline upstream`: file changes are shown, upstreams are tried with real calls."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from jackline.cli.upstream_file import EditedConfigFile
from jackline.testing import SimulatedProvider
from tests.cli.commands import Answer, jackline
from tests.planted import BEARER, KEY, WORD

FILE = """# mine
[[upstream]]  # the vendor
name = "a"

# held shortly
[hold]
quota = 1
"""


class Home:
    """A user with a home of their own, and a project or none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "jackline" / "jackline.toml"
        self.env = {
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "APPDATA": str(folder),
            "LOCALAPPDATA": str(folder),
            "JACKLINE_PORT": "1",
            "ANTHROPIC_API_KEY": "",
            "ANTHROPIC_AUTH_TOKEN": "",
            "CLAUDE_CODE_OAUTH_TOKEN": "",
        }

    def write(self, text: str) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(text, encoding="utf-8")

    def run(self, *arguments: str, **env: str) -> Answer:
        answer = jackline("upstream", *arguments, env={**self.env, **env})
        assert WORD not in answer.out + answer.err
        return answer

    def names(self) -> list[str]:
        table = tomllib.loads(self.file.read_text(encoding="utf-8"))
        return [each.get("name") or each["preset"] for each in table["upstream"]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_the_first_one_that_is_added_leaves_anthropic_preferred(home: Home) -> None:
    answer = home.run("add", "gpt", "--preset", "openai", "--model", "claude-opus-*=gpt-5.5")
    assert answer.code == 0, answer.err
    assert home.file.read_text() == (
        '[[upstream]]\npreset = "anthropic"\n\n'
        '[[upstream]]\nname = "gpt"\npreset = "openai"\n'
        'models = { "claude-opus-*" = "gpt-5.5" }\n'
    )
    assert '+preset = "openai"' in answer.out
    assert f"written: {home.file}" in answer.err
    assert "next:  jackline upstream test gpt" in answer.err


def test_adding_and_taking_out_leave_every_other_line(home: Home) -> None:
    home.write(FILE)
    assert home.run("add", "b", "--preset", "ollama", "--model", "*=m").code == 0
    assert home.run("add", "c", "--preset", "copilot-bridge", "--first").code == 0
    assert home.names() == ["c", "a", "b"]
    lines = home.file.read_text().splitlines()
    assert [line for line in FILE.splitlines() if line not in lines] == []
    for name in ("c", "b"):
        answer = home.run("rm", name)
        assert answer.code == 0
        assert f'-name = "{name}"' in answer.out
    assert home.file.read_text() == FILE


def test_a_dry_run_shows_and_writes_nothing(home: Home) -> None:
    answer = home.run("add", "b", "--url", "https://b.example", "--dry-run")
    assert answer.code == 0
    assert '+url = "https://b.example"' in answer.out
    assert not home.file.exists()
    home.write(FILE)
    answer = home.run("rm", "a", "--dry-run")
    assert '-name = "a"' in answer.out
    assert "no upstream is left, so calls go to https://api.anthropic.com" in answer.err
    assert home.file.read_text() == FILE


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--kind", "openai-chat"), "--url or --preset is missing"),
        (("--preset", "bedrock"), "kind bedrock needs one"),
        (("--preset", "opnai"), "preset: must be one of 'anthropic'"),
        (
            ("--url", "https://b.example", "--credential", KEY),
            'must be "pass-through", "none" or a reference',
        ),
        (("--url", "https://b.example", "--model", "opus"), "is not of the form PATTERN=MODEL"),
    ],
)
def test_what_cannot_work_is_not_added(home: Home, options: tuple[str, ...], what: str) -> None:
    home.write(FILE)
    answer = home.run("add", "b", *options)
    assert answer.code == 2
    assert what in answer.err
    assert home.file.read_text() == FILE
    assert (
        "another upstream is called a already"
        in home.run("add", "a", "--url", "https://b.example").err
    )


def test_what_is_worth_a_warning_is_added_with_it(home: Home) -> None:
    answer = home.run("add", "team", "--first", "--url", "https://team.example")
    assert answer.code == 0
    assert "warning: upstream team: whatever key or login a client sends" in answer.err
    assert "only clients that speak OpenAI" in home.run("add", "gpt", "--preset", "openai").err
    answer = home.run("test", "gpt", OPENAI_API_KEY=KEY)
    assert (answer.code, "--model" in answer.err) == (2, True)


def test_the_file_that_lists_upstreams_is_edited_unless_another_is_named(
    home: Home, tmp_path: Path
) -> None:
    home.write(FILE)
    other = tmp_path / "other.toml"
    other.write_text("[hold]\nquota = 2\n")
    assert home.run("add", "b", "--file", str(other), "--url", "http://127.0.0.1:2").code == 0
    assert "[[upstream]]" in other.read_text()
    assert home.file.read_text() == FILE
    assert home.run("rm", "b", JACKLINE_CONFIG=str(other)).code == 0
    assert 'name = "b"' not in other.read_text()
    above = {"JACKLINE_CONFIG": str(other), "JACKLINE_UPSTREAM": "http://127.0.0.1:3"}
    answer = home.run("add", "b", "--user", "--url", "http://127.0.0.1:2", **above)
    assert home.names() == ["a", "b"]
    assert "JACKLINE_UPSTREAM is set here, and wins over every file" in answer.err
    answer = home.run("rm", "nobody")
    assert (answer.code, "it lists: a, b" in answer.err) == (2, True)


def test_a_projects_file_is_edited_only_where_it_is_named(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in home.env.items():
        monkeypatch.setenv(name, value)
    project = tmp_path / "project" / "jackline.toml"
    project.parent.mkdir()
    project.write_text(FILE)
    monkeypatch.chdir(project.parent)
    assert EditedConfigFile.find(None, users=False).path == home.file
    added = home.run("add", "b", "--url", "http://127.0.0.1:2")
    assert (added.code, project.read_text()) == (0, FILE)
    assert "127.0.0.1:2" in home.file.read_text()
    named = home.run("add", "b", "--url", "http://127.0.0.1:2", "--file", str(project))
    assert named.code == 0
    assert f"jackline trust {project}" in named.err
    assert "127.0.0.1:2" in project.read_text()
    # What a project may not do is refused before it is written.
    words = ("--url", "http://127.0.0.1:3", "--credential", "cmd:id", "--file", str(project))
    refused = home.run("add", "c", *words)
    assert refused.code == 2
    assert "a command is not run for a project's file" in refused.err
    assert "cmd:" not in project.read_text()


@pytest.mark.skipif(os.name == "nt", reason="links and mode bits")
def test_a_file_keeps_its_mode_and_a_link_stays_one(home: Home, tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text(FILE)
    real.chmod(0o640)
    home.file.parent.mkdir(parents=True)
    home.file.symlink_to(real)
    assert home.run("add", "b", "--url", "http://127.0.0.1:2").code == 0
    assert home.file.is_symlink()
    assert (real.stat().st_mode & 0o777, home.names()) == (0o640, ["a", "b"])
    assert list(tmp_path.glob("**/.real.toml*")) == []


def test_a_file_that_is_no_toml_is_reported_and_left(home: Home) -> None:
    home.write("[[upstream]\n")
    answer = home.run("add", "b", "--url", "http://127.0.0.1:2")
    assert answer.code == 2
    assert "is not TOML" in answer.err


def test_upstreams_are_listed_without_their_secrets(home: Home) -> None:
    home.write(
        '[[upstream]]\n[[upstream]]\npreset = "openai"\nmodels = { "claude-*" = "gpt-5.5" }\n'
        '[[upstream]]\nname = "aws"\npreset = "bedrock"\nregion = "us-east-1"\n'
    )
    answer = home.run("ls", OPENAI_API_KEY=KEY)
    assert answer.out.splitlines() == [
        "1. anthropic: anthropic at api.anthropic.com, the client's own credentials",
        "2. openai: openai-responses at api.openai.com/v1, bearer from env:OPENAI_API_KEY",
        "     claude-* → gpt-5.5",
        (
            "3. aws: bedrock at bedrock-runtime.us-east-1.amazonaws.com,"
            " credentials of the vendor's own library"
        ),
    ]
    reported = json.loads(home.run("ls", "--json").out)
    assert reported["schema"] == "jackline.upstreams/1"
    assert reported["gateway"] is False
    second = reported["upstreams"][1]
    assert (second["credential"], second["secret"]) == ("bearer", "env:OPENAI_API_KEY")
    assert second["models"] == {"claude-*": "gpt-5.5"}


def described(kind: str, url: str) -> str:
    lines = [
        "[[upstream]]",
        'name = "it"',
        f'kind = "{kind}"',
        f'url = "{url}"',
        'credential = "env:ITS"',
    ]
    if kind in ("bedrock", "vertex"):
        region = "us-east-1" if kind == "bedrock" else "us-east5"
        lines.append(f'region = "{region}"\nproject = "p"')
    if kind.startswith("openai"):
        lines.append('models = { "claude-opus-*" = "gpt-5.5" }')
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("kind", "path", "model"),
    [
        ("anthropic", "", "claude-haiku-4-5"),
        ("openai-chat", "/v1", "gpt-5.5"),
        ("openai-responses", "/v1", "gpt-5.5"),
        ("bedrock", "", "claude-haiku-4-5"),
        ("vertex", "", "claude-haiku-4-5"),
    ],
)
def test_every_kind_is_tried_with_one_real_call(
    home: Home, kind: str, path: str, model: str
) -> None:
    with SimulatedProvider() as provider:
        home.write(described(kind, provider.url + path))
        answer = home.run("test", "it", ITS=KEY)
        assert (answer.code, answer.out.partition(",")[0]) == (0, f"good: it answers as {model}")
        assert len(provider.ledger) == 1


def test_a_clients_own_credentials_come_from_the_shell(home: Home) -> None:
    with SimulatedProvider() as provider:
        provider.demand_credential()
        home.write(f'[[upstream]]\nurl = "{provider.url}"\n')
        answer = home.run("test", "anthropic")
        assert answer.code == 2
        assert "this shell has none to try it" in answer.err
        assert len(provider.ledger) == 0
        for name, secret in (("ANTHROPIC_API_KEY", KEY), ("CLAUDE_CODE_OAUTH_TOKEN", BEARER)):
            assert home.run("test", "anthropic", **{name: secret}).code == 0


def test_a_refused_credential_is_explained_with_where_it_is_stored(home: Home) -> None:
    with SimulatedProvider() as provider:
        provider.demand_credential()
        home.write(f'[[upstream]]\nname = "it"\nurl = "{provider.url}"\ncredential = "none"\n')
        answer = home.run("test", "it")
        assert answer.code == 4
        assert answer.out.startswith("bad:   it (http://127.0.0.1:")
        assert "This is a rejected credential" in answer.out
        assert "hint:  check what is sent there: no credentials" in answer.out
        reported = json.loads(home.run("test", "it", "--json").out)
        assert (reported["good"], reported["status"], reported["failure"]["kind"]) == (
            False,
            401,
            "auth",
        )


def test_throttles_and_silence_are_distinguished(home: Home) -> None:
    with SimulatedProvider() as provider:
        home.write(described("anthropic", provider.url))
        provider.throttle(seconds=60)
        answer = home.run("test", "it", ITS=KEY)
        assert answer.code == 75
        assert "hint:  try again later: jackline upstream test it" in answer.out
    answer = home.run("test", "it", ITS=KEY)
    assert answer.code == 5
    assert "This is a refused connection" in answer.out


def test_only_the_secret_of_the_one_that_is_tried_is_needed(home: Home) -> None:
    with SimulatedProvider() as provider:
        home.write(
            described("anthropic", provider.url)
            + '\n[[upstream]]\npreset = "openai"\nmodels = { "*" = "m" }\n'
        )
        assert home.run("test", "it", ITS=KEY, OPENAI_API_KEY="").code == 0
        answer = home.run("test", "openai", OPENAI_API_KEY="")
        assert answer.code == 2
        assert "credential: the environment variable OPENAI_API_KEY is not set" in answer.err
        assert home.run("test", "nobody").code == 2


def test_orders_need_a_gateway_and_a_meaning(home: Home) -> None:
    for arguments in (("use", "a"), ("back",), ("pause", "a/*"), ("resume", "a/*")):
        answer = home.run(*arguments)
        assert (answer.code, "no gateway runs" in answer.err) == (5, True)
    for meaningless in (("use",), ("use", "a", "--clear"), ("use", "a", "--for", "soon")):
        assert home.run(*meaningless).code == 2
