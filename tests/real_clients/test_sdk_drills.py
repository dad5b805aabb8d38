"""The vendors' own SDKs, which know nothing of Jackline, come through the drills behind it."""

from __future__ import annotations

from functools import partial

import pytest

from jackline.drills.drill import HAIKU, OPUS, SONNET
from jackline.drills.evaluation import Figures
from jackline.providers.settings import UpstreamKind
from tests.real_clients.anthropic_sdk import sdk_folder
from tests.real_clients.foreign_parts import drilled, part_of
from tests.real_clients.sdk_fleets import anthropic_fleet, openai_fleet
from tests.simulator.vendor_sdks import OPENAI, folder

pytestmark = pytest.mark.real_client

SPEED = 30.0


def with_anthropic(name: str, rounds: int, models: tuple[str, ...] = (SONNET,)) -> Figures:
    part = part_of(name, UpstreamKind.ANTHROPIC, agents=4, rounds=rounds, models=models)
    return drilled(part, partial(anthropic_fleet, sdk_folder()), SPEED)


def with_openai(name: str, rounds: int) -> Figures:
    kind = UpstreamKind.OPENAI_CHAT
    part = part_of(name, kind, agents=4, rounds=rounds, models=("gpt-5.5",))
    return drilled(part, partial(openai_fleet, folder(OPENAI)), SPEED)


def test_anthropics_sdk_moves_elsewhere_and_back() -> None:
    ours = with_anthropic("outage-failover", rounds=12)
    assert ours.wasted > 0, "the outage was met, and not by the client"


def test_anthropics_sdk_goes_on_with_another_family_and_returns() -> None:
    ours = with_anthropic("outage-family", rounds=12)
    assert ours.providers["gpt"]["useful"] > 4


def test_anthropics_sdk_is_moved_for_the_failing_model_alone() -> None:
    ours = with_anthropic("model-degraded", rounds=10, models=(OPUS, HAIKU))
    assert (ours.bystanders_moved, ours.not_moved) == (0, 0)


def test_openais_sdk_moves_elsewhere_and_back() -> None:
    ours = with_openai("outage-failover", rounds=12)
    assert ours.wasted > 0, "the outage was met, and not by the client"
