"""Clients get the settings that waiting needs, and keep what their user chose."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackline.agents.claude_code.environment import CLIENT_VARIABLES, client_environment

URL = "http://127.0.0.1:8766"
LARGEST_TIMER = 2**31 - 1


def test_every_setting_that_waiting_needs_is_there() -> None:
    chosen = client_environment(URL, afk=False, environ={})
    assert chosen["ANTHROPIC_BASE_URL"] == URL
    assert chosen["API_FORCE_IDLE_TIMEOUT"] == "0"
    assert chosen["CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS"] == "0"
    assert chosen["ENABLE_TOOL_SEARCH"] == "true"
    assert chosen["CLAUDE_CODE_ENABLE_FINE_GRAINED_TOOL_STREAMING"] == "1"
    assert chosen["CLAUDE_CODE_PROPAGATE_TRACEPARENT"] == "1"
    assert len(chosen) == len(CLIENT_VARIABLES) + 1


@pytest.mark.parametrize(
    "name",
    [
        "API_TIMEOUT_MS",
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS",
        "CLAUDE_ASYNC_AGENT_STALL_TIMEOUT_MS",
    ],
)
def test_limits_outlast_a_session_wall_and_fit_a_javascript_timer(name: str) -> None:
    milliseconds = int(client_environment(URL, afk=False, environ={})[name])
    assert 6 * 3600 * 1000 < milliseconds < LARGEST_TIMER


def test_each_setting_has_its_reason() -> None:
    assert all(variable.reason for variable in CLIENT_VARIABLES)
    assert len({variable.name for variable in CLIENT_VARIABLES}) == len(CLIENT_VARIABLES)


@pytest.mark.parametrize("variable", CLIENT_VARIABLES, ids=lambda variable: variable.name)
def test_what_the_user_chose_is_left_alone(variable: object) -> None:
    name = str(getattr(variable, "name", ""))
    assert name not in client_environment(URL, afk=True, environ={name: "mine"})
    assert name in client_environment(URL, afk=True, environ={name: ""})


def test_the_address_is_ours_even_where_another_was_set() -> None:
    chosen = client_environment(URL, afk=False, environ={"ANTHROPIC_BASE_URL": "https://x"})
    assert chosen["ANTHROPIC_BASE_URL"] == URL


def test_afk_asks_to_be_held_and_keeps_the_users_headers() -> None:
    name = "ANTHROPIC_CUSTOM_HEADERS"
    hold = "x-jackline-hold: until-reset"
    assert name not in client_environment(URL, afk=False, environ={})
    assert client_environment(URL, afk=True, environ={})[name] == hold
    both = client_environment(URL, afk=True, environ={name: "A: b\nC: d\n"})
    assert both[name] == f"A: b\nC: d\n{hold}"
    assert name not in client_environment(URL, afk=True, environ={name: "X-Jackline-Hold: 5m"})


def test_a_gateway_that_asks_for_a_token_gets_it_beside_the_other_headers() -> None:
    name = "ANTHROPIC_CUSTOM_HEADERS"
    chosen = client_environment(URL, afk=True, environ={name: "A: b"}, token="made-up")  # noqa: S106
    assert chosen[name] == "A: b\nx-jackline-hold: until-reset\nx-jackline-token: made-up"


def test_a_proxy_is_gone_around() -> None:
    def no_proxy(**environ: str) -> dict[str, str]:
        chosen = client_environment(URL, afk=False, environ=environ)
        return {name: value for name, value in chosen.items() if name.lower() == "no_proxy"}

    assert no_proxy() == {}
    assert no_proxy(NO_PROXY="a") == {}
    ours = "127.0.0.1,localhost"
    assert no_proxy(https_proxy="http://p:1") == {"NO_PROXY": ours}
    assert no_proxy(HTTP_PROXY="p", no_proxy="a, b") == {"no_proxy": f"a,b,{ours}"}
    assert no_proxy(ALL_PROXY="p", NO_PROXY="localhost") == {"NO_PROXY": "localhost,127.0.0.1"}
    assert no_proxy(HTTP_PROXY="p", NO_PROXY=ours) == {}
    assert no_proxy(HTTP_PROXY="p", NO_PROXY="*") == {}


def test_the_settings_stand_in_one_place_only() -> None:
    sources = Path(__file__).parents[3] / "src" / "jackline"
    holders = {
        path.name
        for path in sources.rglob("*.py")
        if "CLAUDE_ASYNC_AGENT_STALL_TIMEOUT_MS" in path.read_text("utf-8")
    }
    assert holders == {"environment.py"}
