"""docs/upstreams.md: every configuration on the page works, and no preset is missing there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from jackline.cli.upstream import upstream
from jackline.providers.presets import PRESETS
from tests.config.places import Machine

PAGE = (Path(__file__).parents[2] / "docs" / "upstreams.md").read_text("utf-8")
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^jackline upstream (\w+) *(.*?)(?:  +#.*)?$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_configuration_on_the_page_loads_without_a_warning(
    machine: Machine, block: str
) -> None:
    machine.write_own(block)
    config = machine.load(with_secrets=False)
    assert len(config.gateway.upstreams) == block.count("[[upstream]]")
    assert config.warnings == ()


def test_every_preset_is_on_the_page() -> None:
    shown = {each.get("preset") for block in BLOCKS for each in tomllib.loads(block)["upstream"]}
    named = set(re.findall(r"`([a-z-]+)`", PAGE))
    assert set(PRESETS) <= shown | named
    assert set(PRESETS) - shown == {"openai-chat"}


def test_every_command_on_the_page_exists_with_its_options() -> None:
    assert {name for name, _ in COMMANDS} >= {"add", "ls", "test", "use", "back", "pause", "rm"}
    for name, rest in COMMANDS:
        known = {option for each in upstream.commands[name].params for option in each.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known
