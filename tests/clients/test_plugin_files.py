"""The plugin's files are complete, and the copy in the repository is the one that is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jackline.clients.plugin import ABOUT, HttpHook, marketplace_files, plugin_files

HTTP = HttpHook("http://127.0.0.1:8766/_jackline/hook", "x-jackline-hook", "secret-token")
ROOT = Path(__file__).parents[2]


def test_the_marketplace_in_the_repository_is_what_the_code_makes() -> None:
    for path, text in marketplace_files(["jackline"]).items():
        assert (ROOT / path).read_text("utf-8") == text, f"write {path} anew: see CONTRIBUTING.md"


def test_the_plugin_calls_the_jackline_it_was_made_by() -> None:
    files = plugin_files(["/opt/my python/bin/python", "-m", "jackline"])
    server = json.loads(files[".mcp.json"])["mcpServers"]["jackline"]
    assert server == {"command": "/opt/my python/bin/python", "args": ["-m", "jackline", "mcp"]}
    hooks = json.loads(files["hooks/hooks.json"])["hooks"]
    commands = {h["command"] for rules in hooks.values() for rule in rules for h in rule["hooks"]}
    assert commands == {"'/opt/my python/bin/python' -m jackline hook"}


def test_only_the_hook_whose_failure_nobody_sees_goes_over_http() -> None:
    hooks = json.loads(plugin_files(["jackline"], HTTP)["hooks/hooks.json"])["hooks"]
    kinds = {
        name: {h["type"] for rule in rules for h in rule["hooks"]} for name, rules in hooks.items()
    }
    assert {name for name, kind in kinds.items() if kind == {"http"}} == {"StopFailure"}
    assert all(kind == {"command"} for name, kind in kinds.items() if name != "StopFailure")
    (news,) = hooks["StopFailure"][0]["hooks"]
    assert (news["url"], news["headers"]) == (HTTP.url, {"x-jackline-hook": "secret-token"})
    assert "secret" not in repr(HTTP)


def test_every_file_has_a_description() -> None:
    for path in marketplace_files(["jackline"]):
        assert ABOUT[path.removeprefix("plugin/")]


@pytest.mark.parametrize("http", [None, HTTP])
def test_every_hook_has_a_time_limit(http: HttpHook | None) -> None:
    hooks = json.loads(plugin_files(["jackline"], http)["hooks/hooks.json"])["hooks"]
    limits = [h["timeout"] for rules in hooks.values() for rule in rules for h in rule["hooks"]]
    assert limits
    assert max(limits) <= 10


def test_each_command_says_what_it_is_for() -> None:
    files = plugin_files(["jackline"])
    for name in ("why", "status", "resume"):
        assert files[f"commands/{name}.md"].startswith('---\ndescription: "')
