"""Offer the simulated provider as pytest fixtures.

    pytest_plugins = ["jackline.testing.plugin"]

Rules: (1) the only module of the product that imports pytest; (2) each test has a provider of its
own, which is closed after the test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jackline.simulator.provider import ProviderSettings
from jackline.testing.simulated_provider import DEFAULT_SETTINGS, SimulatedProvider


@pytest.fixture
def jackline_provider_settings() -> ProviderSettings:
    """The provider's settings; override this fixture in a test module to change them."""
    return DEFAULT_SETTINGS


@pytest.fixture
def jackline_provider(jackline_provider_settings: ProviderSettings) -> Iterator[SimulatedProvider]:
    """A provider on a loopback port that answers at once by default."""
    with SimulatedProvider(jackline_provider_settings) as provider:
        yield provider


@pytest.fixture
def simulated_provider(jackline_provider: SimulatedProvider) -> SimulatedProvider:
    """The same provider under a shorter name."""
    return jackline_provider
