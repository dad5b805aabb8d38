"""The plugin's files are whole, and the copy in the repository is the one that is installed."""

from __future__ import annotations

import json
from pathlib import Path

from jackline.clients.plugin_files import marketplace_files, plugin_files

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


def test_every_hook_has_a_time_limit() -> None:
    hooks = json.loads(plugin_files(["jackline"])["hooks/hooks.json"])["hooks"]
    limits = [h["timeout"] for rules in hooks.values() for rule in rules for h in rule["hooks"]]
    assert limits
    assert max(limits) <= 10


def test_each_command_says_what_it_is_for() -> None:
    files = plugin_files(["jackline"])
    for name in ("why", "status", "resume"):
        assert files[f"commands/{name}.md"].startswith('---\ndescription: "')
