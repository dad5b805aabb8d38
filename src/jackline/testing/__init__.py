"""The fakes that Jackline tests itself with: a provider, scripted models, a virtual clock.

    from jackline.testing import SimulatedProvider

    with SimulatedProvider() as provider:
        provider.throttle(seconds=60)
        call_the_model(base_url=provider.url)
        assert provider.ledger.wasted == 1

Rules: importing this needs no pytest; only `jackline.testing.plugin` does.
"""

from __future__ import annotations

from jackline.clock import VirtualClock
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.limits import BucketSettings, Counts
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Fail, Rule, Say, Vanish
from jackline.testing.scripted_agents import ScriptedModel
from jackline.testing.scripted_upstream import ScriptedUpstream, Step
from jackline.testing.simulated_provider import SimulatedProvider

__all__ = [
    "BucketSettings",
    "Counts",
    "Effect",
    "Fail",
    "Fault",
    "ProviderSettings",
    "Rule",
    "Say",
    "ScriptedModel",
    "ScriptedUpstream",
    "SimulatedProvider",
    "Step",
    "Vanish",
    "VirtualClock",
]
