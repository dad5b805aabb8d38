"""docs/upstreams.md: every configuration on the page works, and no preset is missing there."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from jackline import event_loop
from jackline.cli.upstream import upstream
from jackline.cli.upstream_trial import make_trial_call, model_to_try
from jackline.providers.settings import PRESETS, Credential, UpstreamSettings
from jackline.simulator.reply_script import Say
from jackline.testing import SimulatedProvider
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


@pytest.mark.parametrize("block", BLOCKS)
def test_every_upstream_on_the_page_answers_a_real_call(machine: Machine, block: str) -> None:
    machine.write_own(block)
    for named in machine.load(with_secrets=False).gateway.upstreams:
        with SimulatedProvider() as simulated:
            simulated.says(Say("pong"))
            if named.credential is not Credential.NONE:
                simulated.demand_credential()
            upstream = _at(simulated.url, named)
            model = model_to_try(upstream, None if named.models else "claude-haiku-4-5")
            environ = {
                "ANTHROPIC_API_KEY": "sk-ant-one",
                "OPENAI_API_KEY": "sk-one",
                "AWS_REGION": "eu-central-1",  # else the vendor's own host tells it
            }
            came = event_loop.run(make_trial_call(upstream, model, environ, datetime.now(UTC)))
            assert (came.failure, came.status) == (None, 200), named.name
            (entry,) = simulated.ledger
            assert entry.dialect == named.kind.value


def _at(url: str, upstream: UpstreamSettings) -> UpstreamSettings:
    """The same upstream with the simulator in its vendor's place, and any key."""
    here = f"{url}{urlsplit(upstream.url).path}"
    if upstream.credential in (Credential.PASS_THROUGH, Credential.NONE):
        return replace(upstream, url=here)
    auth = upstream.credential
    if auth is Credential.VENDOR:
        auth = Credential.BEARER  # whose library finds it is tested elsewhere
    return replace(upstream, url=here, credential=auth, secret="any-key")  # noqa: S106


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
