"""Whatever is between the user and the vendors is named."""

from __future__ import annotations

import pytest

from jackline.control import LaneStatus
from jackline.control.lane_status import own_network


def lane(name: str, state: str = "down", cause: tuple[str, str | None] | None = None) -> LaneStatus:
    return LaneStatus(name, state, "", None, 0, 1, 1, {}, cause, upstream=name.partition("/")[0])


@pytest.mark.parametrize("what", ["captive_portal", "tls", "dns", "proxy"])
def test_something_in_between_is_reported_at_once_with_its_name(what: str) -> None:
    shown = own_network([lane("a/opus", cause=("network_edge", what))])
    assert shown is not None
    assert "Your own network" in shown
    assert what in shown
