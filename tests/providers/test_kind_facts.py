"""All facts about a kind of upstream are in one record, so that a new kind touches few files."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import jackline
from jackline.providers.settings import KIND_FACTS, UpstreamKind

SOURCE = Path(jackline.__file__).parent
# The record with the presets, and the constructors.
MAY_LIST_KINDS = {f"providers/{name}.py" for name in ("settings", "provided_upstream")}


def kinds_named_in(path: Path) -> set[str]:
    """The kinds that a module names, as `UpstreamKind.NAME`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "UpstreamKind"
        and node.attr in UpstreamKind.__members__
    }


def test_only_two_modules_list_the_kinds() -> None:
    lists = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if len(kinds_named_in(path)) > 1
    }
    assert lists == MAY_LIST_KINDS


@pytest.mark.parametrize("kind", UpstreamKind)
def test_the_facts_of_a_kind_are_complete(kind: UpstreamKind) -> None:
    facts = kind.facts
    assert facts.telemetry_name
    if facts.cloud is None:
        assert facts.own_hosts
        assert facts.key_variables
        assert facts.url_example.startswith(f"https://{facts.own_hosts[0]}")
    else:
        assert facts.cloud.url(facts.cloud.example_region).startswith("https://")
    assert facts.limits_of in (None, "project", "workspace")


def test_every_kind_has_facts_and_only_clouds_have_regions() -> None:
    assert set(KIND_FACTS) == set(UpstreamKind)
    clouds = {kind for kind in UpstreamKind if kind.facts.cloud is not None}
    assert clouds == {UpstreamKind.BEDROCK, UpstreamKind.VERTEX}
