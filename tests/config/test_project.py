"""What a project's file may do with each setting is decided once, here, and closed by default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jackline.config.declaration import SETTINGS
from jackline.config.project import plain_ascii, rule_of
from jackline.settings import InProject
from tests.config.places import Machine

# Whoever adds a setting to these lists has thought about what a stranger could do with it: move
# data, code, credentials, addresses or files, or loosen a brake. All others are closed.
FREE = {"stream", "hold.quota", "hold.other"}
PRICED = {"run.model", "agents.model"}
LOWER = {
    *("caps.session", "caps.agent", "caps.tags", "run.at_once", "reserve.share", "resume.spend"),
    *("budget.tokens", "budget.dollars", "budget.agents", "budget.turns", "budget.time"),
}
MORE = {"never_degrade", "reserve.classes"}
CONSENT = {
    *("upstream.name", "upstream.preset", "upstream.kind", "upstream.url", "upstream.credential"),
    *("upstream.auth", "upstream.region", "upstream.project", "upstream.proxy"),
    *("upstream.status_page", "upstream.cost_class", "upstream.local", "upstream.longest_answer"),
    *("upstream.model_limits", "upstream.models", "upstream.headers"),
    *("upstream.cache_ttl", "upstream.counts_cached"),
    *(f"upstream.limits.{side}_tokens_per_minute" for side in ("input", "output")),
    *("upstream.limits.requests_per_minute", "upstream.limits.parallel"),
}


def test_every_setting_is_closed_to_projects_unless_it_was_decided_otherwise() -> None:
    by_rule: dict[InProject, set[str]] = {rule: set() for rule in InProject}
    for key in SETTINGS:
        by_rule[rule_of(key)].add(".".join(key))
    closed = by_rule.pop(InProject.NEVER)
    assert by_rule == {
        InProject.FREE: FREE,
        InProject.PRICED: PRICED,
        InProject.LOWER: LOWER,
        InProject.MORE: MORE,
        InProject.CONSENT: CONSENT,
    }
    assert {"state", "listen.host", "listen.names", "upstream.ca_file", "prices"} <= closed
    assert {"upstream.admin_key", "upstream.workspace"} <= closed
    assert {"agents.runner", "agents.runners", "agents.tools", "agents.folders"} <= closed
    # A stranger's repository must not make prompts dearer.
    assert {"cache.ttl", "cache.tags", "cache.classes"} <= closed


def test_the_documentation_lists_the_same_settings() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
    table = page[page.index("| settings | in a project's file |") :].split("\n\n")[0]
    rows = [set(re.findall(r"`([^`]+)`", line.split("|")[1])) for line in table.splitlines()[2:]]
    assert rows[:5] == [FREE, PRICED, LOWER, MORE, {"[[upstream]]"}]
    assert "upstream.ca_file" in rows[5]


def test_what_is_no_setting_is_closed() -> None:
    for key in (("nonsense",), ("caps", "nonsense"), ("caps",), ("prices", "*", "input"), ()):
        assert rule_of(key) is InProject.NEVER
    assert rule_of(("caps", "tags", "night")) is InProject.LOWER
    assert rule_of(("upstream", 1, "limits", "parallel")) is InProject.CONSENT


def test_the_line_about_a_projects_file_says_where_each_key_belongs(machine: Machine) -> None:
    own = machine.write_own("[budget]\ndollars = 5\n")
    path = machine.write(
        'state = "s"\n[budget]\ndollars = 6\n[prices."x"]\ninput = 1\n[[upstream]]\nname = "a"\n'
        "[nonsense]\nx = 1\n"
    )
    (line,) = machine.load().warnings
    assert line == (
        f"{path} is a project's file; ignored in it: prices, state (they belong in your own file,"
        f" {own}); budget.dollars (not stricter than without it); upstream (you have not agreed to"
        f" it; look and agree: jackline trust {path}); what has faults (1 fault; see them: jackline"
        f" trust {path} --dry-run)"
    )


def test_a_projects_list_is_short(machine: Machine) -> None:
    """Its patterns are matched against every call of every caller."""
    own = 'never_degrade = ["mine"]\n'
    machine.write_own(own)
    path = machine.write(f"never_degrade = {[f'p{number}' for number in range(100)]}")
    assert len(machine.load().gateway.never_degrade) == 101
    many = [f"p{number}" for number in range(101)]
    for entries in (many, ["*a" * 101]):
        path.write_text(f"never_degrade = {entries}\n[reserve]\nclasses = {entries}\n")
        config = machine.load()
        assert config.gateway.never_degrade == ("mine",)
        assert "never_degrade, reserve.classes (more than 100 entries" in config.warnings[0]
    machine.write_own(f"never_degrade = {many}")
    path.write_text("")
    assert len(machine.load().gateway.never_degrade) == 101, "the user's own may be longer"


def test_a_named_file_is_the_users_word(machine: Machine) -> None:
    path = machine.write('state = "s"\n[listen]\nport = 7\n[[upstream]]\nname = "a"\n')
    for config in (
        machine.load(JACKLINE_CONFIG=str(path)),
        machine.load(flags={"config": path}),
    ):
        assert config.state_dir == path.parent / "s"
        assert (config.gateway.listen.port, config.gateway.upstream.name) == (7, "a")
        assert config.warnings == ()


def test_one_upstream_that_cannot_count_keeps_all_of_them_out(machine: Machine) -> None:
    path = machine.write(
        '[[upstream]]\nname = "a"\nurl = "http://127.0.0.1:1"\n'
        '[[upstream]]\nname = "b"\nurl = "http://127.0.0.1:2"\nca_file = "ca.pem"\n'
    )
    machine.trust(path)
    config = machine.load()
    assert [each.name for each in config.gateway.upstreams] == ["anthropic"]
    assert f"upstream (refused; jackline trust {path} says why)" in config.warnings[0]


@pytest.mark.parametrize(
    ("text", "shown"), [("plain", "plain"), ("\x1b[2K", "\\x1b[2K"), ("\u0430", "\\u0430")]
)
def test_texts_of_a_stranger_are_shown_in_plain_ascii(text: str, shown: str) -> None:
    assert plain_ascii(text) == shown
