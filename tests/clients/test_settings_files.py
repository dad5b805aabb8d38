"""A client's settings get what waiting needs, lose nothing, and can be restored."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.clients import codex
from jackline.clients.claude_code import ClaudeSettings, ConnectionRecords
from jackline.clients.settings_change import BACKUP, SettingsChange, read_settings
from jackline.errors import UnreadableError, UsageError

PATH = Path("settings")
URL = "http://127.0.0.1:8766"
VARIABLES = {"ANTHROPIC_BASE_URL": URL, "API_TIMEOUT_MS": "86400000"}

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
names = st.text(max_size=8).filter(lambda name: name != "env")
variables = st.dictionaries(
    st.sampled_from(["ANTHROPIC_BASE_URL", "API_TIMEOUT_MS", "MINE"]),
    st.none() | st.text(max_size=8),
)
settings = st.tuples(
    st.dictionaries(names, plain, max_size=5),
    st.sampled_from([{}, {"statusLine": None}]),
    st.just({}) | st.builds(lambda env: {"env": env}, st.none() | variables),
).map(lambda parts: {**parts[0], **parts[1], **parts[2]})


def without_nothing(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without what counts as nothing where `connect` writes."""
    env = {
        name: value
        for name, value in (settings.get("env") or {}).items()
        if value is not None or name not in VARIABLES
    }
    rest = {name: value for name, value in settings.items() if name != "env"}
    if rest.get("statusLine", 0) is None:
        del rest["statusLine"]
    return {**rest, "env": env} if env else rest


@given(settings, st.sampled_from([None, 2, 4, "\t"]))
def test_connecting_and_disconnecting_gives_back_the_same_settings(
    settings: dict[str, Any], indent: int | str | None
) -> None:
    text = json.dumps(settings, indent=indent)
    after, written = ClaudeSettings(PATH, text).connected(VARIABLES, "jackline statusline")
    reported = json.loads(after)
    assert {**reported["env"], **VARIABLES} == reported["env"]
    for name, value in without_nothing(settings).items():
        if name != "env":
            assert reported[name] == value
    back, changed_since = ClaudeSettings(PATH, after).disconnected(written)
    assert changed_since == []
    assert json.loads(back or "{}") == without_nothing(settings)


@pytest.mark.parametrize("env", [5, "x", "", 0, False, ["A=1"], []])
def test_settings_whose_env_is_no_object_are_left_alone(env: object) -> None:
    with pytest.raises(UnreadableError, match="its env is no JSON object"):
        ClaudeSettings(PATH, json.dumps({"env": env})).connected(VARIABLES, "x")


def test_connecting_twice_still_knows_what_was_there_first(tmp_path: Path) -> None:
    text = '{"env": {"ANTHROPIC_BASE_URL": "https://mine.example"}}'
    records = ConnectionRecords(tmp_path)
    once, written = ClaudeSettings(PATH, text).connected(VARIABLES, "x")
    records.save(PATH, written)
    other = {**VARIABLES, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9000"}
    twice, written = ClaudeSettings(PATH, once).connected(other, "x")
    records.save(PATH, written)
    back, _ = ClaudeSettings(PATH, twice).disconnected(records.of(PATH))
    assert json.loads(back or "") == json.loads(text)
    records.forget(PATH)
    assert records.of(PATH) == {}


def test_what_someone_changed_since_is_left_alone_and_reported() -> None:
    after, written = ClaudeSettings(PATH, "{}").connected(VARIABLES, "x")
    changed = after.replace("86400000", "5")
    back, changed_since = ClaudeSettings(PATH, changed).disconnected(written)
    assert changed_since == ["env.API_TIMEOUT_MS"]
    assert json.loads(back or "") == {"env": {"API_TIMEOUT_MS": "5"}}


def test_a_status_line_of_the_users_own_stays() -> None:
    after, _ = ClaudeSettings(PATH, '{"statusLine": {"a": 1}}').connected(VARIABLES, "x")
    assert json.loads(after)["statusLine"] == {"a": 1}


def test_our_status_line_is_drawn_while_a_session_waits_and_an_older_one_of_ours_is_renewed() -> (
    None
):
    fresh, _ = ClaudeSettings(PATH, "{}").connected({}, "x")
    assert json.loads(fresh)["statusLine"]["refreshInterval"] >= 1
    old = '{"statusLine": {"type": "command", "command": "x"}}'
    renewed, written = ClaudeSettings(PATH, old).connected({}, "x")
    assert json.loads(renewed) == json.loads(fresh)
    assert ClaudeSettings(PATH, renewed).connected({}, "x")[1] == {}
    back, changed_since = ClaudeSettings(PATH, renewed).disconnected(written)
    assert (json.loads(back or ""), changed_since) == (json.loads(old), [])


@pytest.mark.parametrize("text", ["[1]", "{", "// note\n{}"])
def test_what_is_no_settings_file_is_not_touched(text: str) -> None:
    with pytest.raises(UnreadableError, match="left as it is"):
        ClaudeSettings(PATH, text).connected(VARIABLES, "x")


CODEX = [
    "",
    'model = "gpt-5"\n',
    '# mine\nmodel_provider = "mine" # why\nmodel = "x"\n\n[model_providers.mine]\nname = "m"\n',
    '[profiles.a]\nmodel_provider = "mine"\n',
    "[model_providers]\n[model_providers.other]\nname = 'o'\n",
]


@pytest.mark.parametrize("text", CODEX)
@pytest.mark.parametrize("env_key", [None, "OPENAI_API_KEY"])
def test_codex_gets_one_more_provider_and_its_file_back(text: str, env_key: str | None) -> None:
    after = codex.connected(text, PATH, URL, env_key=env_key)
    reported = tomllib.loads(after)
    assert reported["model_provider"] == "jackline"
    provider = reported["model_providers"]["jackline"]
    assert provider["base_url"] == f"{URL}/v1"
    assert provider.get("env_key") == env_key
    assert codex.connected(after, PATH, URL, env_key=env_key) == after
    assert (codex.disconnected(after, PATH) or "") == text


def test_codex_files_that_cannot_be_changed_safely_are_refused() -> None:
    with pytest.raises(UsageError, match="touching"):
        codex.connected('model_providers = { mine = { name = "m" } }\n', PATH, URL, env_key=None)
    with pytest.raises(UsageError, match="of its own"):
        codex.connected('[model_providers.jackline]\nname = "n"\n', PATH, URL, env_key=None)
    with pytest.raises(UnreadableError):
        codex.connected("a = [", PATH, URL, env_key=None)


def test_a_change_keeps_the_first_backup_the_mode_and_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("one")
    real.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(real)
    assert SettingsChange(link, "one", "two").apply() == real.with_name("real.json" + BACKUP)
    SettingsChange(link, "two", "three").apply()
    assert link.is_symlink()
    assert (real.read_text(), real.stat().st_mode & 0o777) == ("three", 0o640)
    assert real.with_name("real.json" + BACKUP).read_text() == "one"
    SettingsChange(link, "three", None).apply()
    assert read_settings(real) is None


@pytest.mark.parametrize("text", ['{"model":"opus"}', "{}\n", "", '{"env": {}}', None])
def test_disconnecting_what_was_never_connected_changes_no_byte(text: str | None) -> None:
    assert ClaudeSettings(Path("settings.json"), text).disconnected({}) == (text, [])
