"""Ship the doubles that Jackline tests itself with: a provider in a box and a clock that obeys.

    from jackline.testing import SimulatedProvider

    with SimulatedProvider() as provider:
        provider.throttle(seconds=60)
        call_the_model(base_url=provider.url)
        assert provider.ledger.wasted == 1

Laws: (1) importing this needs no pytest; only `jackline.testing.plugin` does.
Not here: the model behind it (simulator/).
"""

from __future__ import annotations

from jackline.clock import VirtualClock
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.limits import BucketSettings, Counts
from jackline.simulator.mind import Fail, Rule, Say, Vanish
from jackline.simulator.settings import ProviderSettings
from jackline.testing.memory_engine import MemoryEngine
from jackline.testing.provider import SimulatedProvider
from jackline.testing.scripted_model import ScriptedModel
from jackline.testing.scripted_upstream import ScriptedUpstream, Step

__all__ = [
    "BucketSettings",
    "Counts",
    "Effect",
    "Fail",
    "Fault",
    "MemoryEngine",
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
