"""Offer the shipped fixtures to these tests."""

from __future__ import annotations

from jackline.testing.plugin import (
    jackline_provider,
    jackline_provider_settings,
    simulated_provider,
)

__all__ = ["jackline_provider", "jackline_provider_settings", "simulated_provider"]
