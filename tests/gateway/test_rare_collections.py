"""While a gateway serves, the garbage collector looks rarely; afterwards it is as it was."""

from __future__ import annotations

import gc

from jackline.gateway.listener import YOUNG_OBJECTS, RareCollections


def test_the_collector_is_as_it_was_once_the_last_has_let_go() -> None:
    before = gc.get_threshold()
    rare = RareCollections()
    rare.begin()
    rare.begin()
    assert gc.get_threshold() == (YOUNG_OBJECTS, *before[1:])
    rare.end()
    assert gc.get_threshold()[0] == YOUNG_OBJECTS, "another one still serves"
    rare.end()
    assert gc.get_threshold() == before
    rare.begin()
    rare.end()
    assert gc.get_threshold() == before
