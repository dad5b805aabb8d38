"""Codex is started so that all calls go to the gateway, and nothing secret shows."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.agents.codex import CodexRunner, strict_schema
from jackline.agents.process.child import start_files_root
from jackline.agents.process.program import StartCommand, StartRequest
from jackline.agents.runner import AgentTask
from jackline.dialects import TokenUsage
from jackline.private_files import installation_key
from jackline.task_proof import task_in
from jackline.transcripts.saved_conversation import read_codex_thread
from jackline.transcripts.sources import ClientFolders

LOOSE = {"type": "object", "properties": {"x": {"type": "integer"}}}
RUNNER = CodexRunner("http://127.0.0.1:1", environment={})
STRICT = {**LOOSE, "required": ["x"], "additionalProperties": False}


def start(
    task: AgentTask, order: StartRequest | None = None, **more: Any
) -> tuple[StartCommand, dict[str, Any]]:
    """How it is started, and the settings of its command line as Codex would read them."""
    environment = {"HOME": "/nowhere", **more.pop("environment", {})}
    runner = CodexRunner("http://127.0.0.1:1", environment=environment, **more)
    with runner.start(task, order or StartRequest(None, "gpt-5.5")) as begun:
        command = list(begun.command)
        given = [command[n + 1] for n, word in enumerate(command) if word == "-c"]
        return begun, tomllib.loads("\n".join(given))


def test_all_calls_go_to_the_gateway_and_nothing_is_asked() -> None:
    task = AgentTask("t", "s", "THE TASK", system="SYSTEM", class_="background")
    begun, settings = start(task, tag="run-7", token="gateways-own")  # noqa: S106
    provider = settings["model_providers"]["jackline"]
    assert settings["model_provider"] == "jackline"
    assert provider["base_url"] == "http://127.0.0.1:1/t/run-7/v1"
    assert provider["wire_api"] == "responses"
    assert "env_key" not in provider, "it has no credential: the gateway's upstream has its own"
    assert provider["http_headers"] == {"x-jackline-class": "background"}
    named = begun.environment[provider["env_http_headers"]["x-jackline-task"]]
    assert task_in(installation_key(), named.encode()) == "t"
    assert settings["approval_policy"] == "never"
    variable = provider["env_http_headers"]["x-jackline-token"]
    assert begun.environment[variable] == "gateways-own"
    line = " ".join(begun.command)
    assert not any(word in line for word in ("THE TASK", "SYSTEM", "gateways-own", named))
    assert begun.command[-1] == "-"
    assert "gateways-own" not in repr(begun)


def test_a_key_of_the_users_is_named_and_not_shown() -> None:
    begun, settings = start(AgentTask("t", "s", "-"), environment={"OPENAI_API_KEY": "sk-mine"})
    assert settings["model_providers"]["jackline"]["env_key"] == "OPENAI_API_KEY"
    assert "sk-mine" not in " ".join(begun.command)


def test_what_it_may_do_to_the_disk_follows_from_its_tools() -> None:
    for names, sandbox in (
        (None, "workspace-write"),
        (("Read", "Bash(git *)"), "workspace-write"),
        (("Read", "Grep"), "read-only"),
        ((), "read-only"),
    ):
        assert start(AgentTask("t", "s", "-", tool_names=names))[1]["sandbox_mode"] == sandbox


def test_the_users_own_settings_of_codex_are_not_loosened(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    (home / ".codex").mkdir(parents=True)
    project.mkdir()
    task = AgentTask("t", "s", "-", cwd=project)

    def sandbox(settings: str | bytes, **more: Any) -> str:
        data = settings if isinstance(settings, bytes) else settings.encode()
        (home / ".codex" / "config.toml").write_bytes(data)
        given = start(task, environment={"HOME": str(home)}, **more)[1]
        # Nobody can be asked: what needs an approval is denied.
        assert given["approval_policy"] == "never"
        return str(given["sandbox_mode"])

    assert sandbox("") == "workspace-write"
    for loose in ("workspace-write", "danger-full-access"):
        assert sandbox(f'sandbox_mode = "{loose}"\n') == "workspace-write"
    assert sandbox('default_permissions = ":workspace"\n') == "workspace-write"
    for policy in ("on-request", "on-failure", "never"):
        assert sandbox(f'approval_policy = "{policy}"\n') == "workspace-write"
    for strict in (
        'sandbox_mode = "read-only"\napproval_policy = "untrusted"',
        'sandbox_mode = "read-only"',
        # Each command that is not known to be harmless would be asked about.
        'approval_policy = "untrusted"',
        'approval_policy = "unless-trusted"',
        'approval_policy = "of another release"',
        'sandbox_mode = "of another release"',
        "sandbox_mode = 1",
        'default_permissions = ":read-only"',
        'default_permissions = "own"\n[permissions.own]',
        "[approval_policy.granular]\nrules = true",
        'profile = "safe"\n[profiles.safe]\nsandbox_mode = "read-only"',
        f'[projects."{project}"]\ntrust_level = "untrusted"',
        f'[projects."{tmp_path}"]\ntrust_level = "untrusted"',
        # What cannot be read may say anything.
        "sandbox_mode = ",
        b"\xff",
    ):
        assert sandbox(strict) == "read-only", strict
    # The flow's own code is the user's word, too, and a nearer one.
    assert sandbox('sandbox_mode = "read-only"', sandbox="workspace-write") == "workspace-write"
    # A trusted project's own settings count for Codex, and here as far as they are stricter.
    (project / ".codex").mkdir()
    (project / ".codex" / "config.toml").write_text('sandbox_mode = "read-only"')
    assert sandbox('sandbox_mode = "danger-full-access"') == "read-only"


def trusted_in(home: Path, *folders: Path, level: str = "trusted") -> dict[str, str]:
    """The environment of a user whose settings of Codex say so of these folders."""
    (home / ".codex").mkdir(parents=True, exist_ok=True)
    tables = [f"[projects.{json.dumps(str(each))}]\ntrust_level = '{level}'\n" for each in folders]
    (home / ".codex" / "config.toml").write_text("".join(tables))
    return {"HOME": str(home)}


def test_every_folder_is_untrusted_whatever_the_users_own_settings_say(tmp_path: Path) -> None:
    """Another agent may have written its settings since the user trusted it."""
    home, project = tmp_path / "home", tmp_path / "project"
    below = project / "a" / "b"
    below.mkdir(parents=True)
    (project / ".git").mkdir()
    (below / ".codex").mkdir()

    def named(environment: dict[str, str]) -> set[str]:
        _, given = start(AgentTask("t", "s", "-", cwd=below), environment=environment)
        levels = given.get("projects", {})
        assert all(each == {"trust_level": "untrusted"} for each in levels.values())
        return set(levels)

    inside = {str(each) for each in (below, below.parent, project)}
    assert named({"HOME": str(home)}) == inside
    for trusted in (tmp_path, project, below.parent, below, tmp_path / "other"):
        assert named(trusted_in(home, trusted)) == inside
    said = RUNNER.unfollowed_notice(below)
    assert str(below / ".codex") in said
    assert "agents that work there may write" in said
    assert not RUNNER.unfollowed_notice(project), "nothing is lost there"


def test_commands_write_to_no_temporary_folder_that_others_share(tmp_path: Path) -> None:
    begun, given = start(
        AgentTask("t", "s", "-", cwd=tmp_path), environment={"TMPDIR": gettempdir()}
    )
    assert given["sandbox_workspace_write"] == {"exclude_slash_tmp": True}
    own = Path(begun.environment["TMPDIR"])
    assert own.is_relative_to(start_files_root())
    again, _ = start(AgentTask("t", "s", "-", cwd=tmp_path))
    assert again.environment["TMPDIR"] != str(own)


def test_codexs_own_git_sees_no_repository_and_that_of_its_shell_does(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    settings = '[shell_environment_policy]\nexclude = ["AWS_*"]\n'
    (tmp_path / ".codex" / "config.toml").write_text(settings)
    begun, given = start(AgentTask("t", "s", "-"), environment={"HOME": str(tmp_path)})
    assert Path(begun.environment["GIT_DIR"]).is_relative_to(start_files_root())
    assert given["shell_environment_policy"]["exclude"] == ["AWS_*", "GIT_DIR"]


def test_a_folder_that_holds_the_users_own_settings_is_only_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for inside, sandbox in ((home / "src", "workspace-write"), (home, "read-only")):
        inside.mkdir(parents=True, exist_ok=True)
        task = AgentTask("t", "s", "-", cwd=inside)
        assert start(task, environment={"HOME": str(home)})[1]["sandbox_mode"] == sandbox
    project = home / "src"
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        own = {"HOME": str(home), name: str(project / "own")}
        task = AgentTask("t", "s", "-", cwd=project)
        assert start(task, environment=own)[1]["sandbox_mode"] == "read-only", name
    for folder in (start_files_root().parent, Path(gettempdir())):
        task = AgentTask("t", "s", "-", cwd=folder)
        assert start(task)[1]["sandbox_mode"] == "read-only", folder


@pytest.mark.skipif(os.name == "nt", reason="such names are POSIX'")
@pytest.mark.parametrize(
    "name",
    ['a "quoted" one', "back\\slash", "line\nbreak", "del\x7f", "\N{GRINNING FACE}", "a.b={}"],
)
def test_any_name_of_a_folder_is_named_whole(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    _, given = start(AgentTask("t", "s", "-", cwd=tmp_path / name))
    assert given["projects"][str(tmp_path / name)] == {"trust_level": "untrusted"}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems know no such names")
def test_a_folder_that_toml_cannot_name_is_only_read(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    _, given = start(AgentTask("t", "s", "-", cwd=folder))
    assert (given["sandbox_mode"], "projects" in given) == ("read-only", False)


@pytest.mark.parametrize(
    "text",
    ["a." * 20_000 + "a = 1", "x = [" + "[]," * 100_000 + "]", f"x = {'9' * 5_000}", "[" * 2_000],
    ids=["deep key", "large", "long number", "nested"],
)
def test_settings_of_a_folder_that_take_long_to_parse_are_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(text)
    parsed: list[int] = []
    real = tomllib.loads

    def loads(text: str) -> dict[str, Any]:
        parsed.append(len(text))
        return real(text)

    monkeypatch.setattr(tomllib, "loads", loads)
    runner = CodexRunner("http://127.0.0.1:1", environment={"HOME": "/nowhere"})
    task = AgentTask("t", "s", "-", cwd=tmp_path)
    with runner.start(task, StartRequest(None, "gpt-5.5")) as begun:
        assert 'sandbox_mode="read-only"' in begun.command
    assert sum(parsed) < 10_000


def test_settings_of_codex_that_are_no_file_are_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / ".codex" / "config.toml").mkdir(parents=True)
    _, given = start(AgentTask("t", "s", "-"), environment={"HOME": str(tmp_path)})
    assert given["sandbox_mode"] == "read-only"


def test_servers_are_given_with_their_secrets_in_the_environment() -> None:
    servers: dict[str, dict[str, Any]] = {
        "my tools": {"command": "srv", "args": ["-v"], "env": {"TOKEN": "SECRET-1"}},
        "web": {"type": "http", "url": "http://x", "headers": {"Authorization": "SECRET-2"}},
    }
    begun, settings = start(AgentTask("t", "s", "-", mcp_servers=servers))
    told = settings["mcp_servers"]
    assert told["my tools"] == {
        "command": "srv",
        "args": ["-v"],
        "env_vars": ["TOKEN", "JACKLINE_TASK"],
    }
    assert begun.environment["TOKEN"] == servers["my tools"]["env"]["TOKEN"]
    assert begun.environment[told["web"]["env_http_headers"]["Authorization"]] == "SECRET-2"
    assert "SECRET" not in " ".join(begun.command)


def test_a_thread_is_resumed_by_its_id() -> None:
    begun, _ = start(AgentTask("t", "s", "-"), StartRequest("01a1", None))
    assert begun.command[1:3] == ["exec", "resume"]
    assert begun.command[-2:] == ["01a1", "-"]


def test_a_schema_is_enforced_where_it_can_be_and_else_asked_for_in_words() -> None:
    strict = AgentTask("t", "s", "THE TASK", schema=dict(STRICT))
    assert "--output-schema" in start(strict)[0].command
    assert RUNNER.task_prompt(strict) == "THE TASK"
    loose = AgentTask("t", "s", "THE TASK", schema=dict(LOOSE), system="SYSTEM")
    assert "--output-schema" not in start(loose)[0].command
    assert RUNNER.task_prompt(loose).startswith("SYSTEM\n\nTHE TASK\n\n")
    assert json.dumps(LOOSE) in RUNNER.task_prompt(loose)


SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {"type": "integer", "default": 3},
            {"type": "string", "minLength": 2},
            {"$ref": "#/$defs/a"},
            {},
        ]
    ),
    lambda inner: st.one_of(
        inner.map(lambda one: {"type": "array", "items": one}),
        st.lists(inner, min_size=1, max_size=2).map(lambda many: {"anyOf": many}),
        st.tuples(inner, inner, st.booleans()).map(
            lambda given: {
                "type": "object",
                "properties": {"a": given[0], "b": given[1]},
                "required": ["a", "b"] if given[2] else ["a"],
            }
        ),
    ),
    max_leaves=6,
)


@given(SCHEMAS)
def test_a_strict_schema_only_narrows_what_was_asked_for(schema: dict[str, object]) -> None:
    strict = strict_schema(schema)
    if strict is not None:
        assert _without(strict, "additionalProperties") == _without(schema, "default")
        assert strict_schema(strict) == strict


def _without(schema: object, key: str) -> object:
    if isinstance(schema, dict):
        return {name: _without(each, key) for name, each in schema.items() if name != key}
    return [_without(each, key) for each in schema] if isinstance(schema, list) else schema


def test_a_rollout_tells_what_was_lost_and_what_every_call_cost(tmp_path: Path) -> None:
    def item(**payload: Any) -> dict[str, Any]:
        return {"type": "response_item", "payload": payload}

    def cost(tokens: int) -> dict[str, Any]:
        usage = {"input_tokens": tokens, "cached_input_tokens": 2, "output_tokens": 1}
        return {"type": "token_usage_record", "payload": {"usage": usage}}

    lines = [
        {"type": "turn_context", "payload": {"model": "gpt-5.5"}},
        item(type="message", role="user", content=[{"type": "input_text", "text": "THE TASK"}]),
        item(type="function_call", call_id="c1", name="exec_command", arguments="{}"),
        item(type="function_call_output", call_id="c1"),
        cost(10),
        item(type="custom_tool_call", call_id="c2", name="apply_patch", input="*** Begin"),
        cost(20),
    ]
    folder = tmp_path / "sessions" / "2026" / "11" / "15"
    folder.mkdir(parents=True)
    path = folder / "rollout-2026-11-15T14-30-54-01a1.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"type": "resp')
    folders = ClientFolders.of_process({"CODEX_HOME": str(tmp_path)})
    assert folders.codex_rollout("01a1") == path
    assert folders.codex_rollout("*") is None
    thread = read_codex_thread(path)
    assert thread.prompts == ["THE TASK"]
    assert [str(call) for call in thread.lost] == ["apply_patch *** Begin (c2)"]
    assert (thread.tokens[""], thread.answers) == (TokenUsage(26, 2, 4, 0), 2)
