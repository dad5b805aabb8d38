"""Agents are followed from ledger to ledger by one clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.drills.evaluation import (
    ProviderLedger,
    Trip,
    back_after,
    herd,
    most_moves,
    served,
    slowest_move,
    trips,
)
from jackline.simulator.exchange import SimRequest
from jackline.simulator.ledger import RequestLedger, RequestOutcome


def went(host: str, arrived: float, *, took: float = 1.0, well: bool = True) -> Trip:
    return Trip(host, "one", "m", arrived, arrived + took, well)


def test_ledgers_are_read_by_one_clock_and_strangers_left_out() -> None:
    books = []
    for host, ahead in (("home", 0.0), ("away", -7.0)):
        ledger = RequestLedger()
        for number, hash_ in enumerate(("known", "strange")):
            entry = ledger.opened(number, 5.0, SimRequest(model="m", body_hash=hash_))
            ledger.ended(entry, 6.0, RequestOutcome.COMPLETED, "completed")
        books.append(ProviderLedger(host, ledger, ahead))
    assert trips(books, {"known": "one"}) == [went("away", -2.0), went("home", 5.0)]


def test_a_move_is_timed_from_the_first_failure_to_setting_out_on_what_succeeds() -> None:
    way = [
        went("home", 0.0),
        went("home", 2.0, well=False),
        went("home", 4.0, well=False),
        went("away", 9.5),
        went("home", 20.0, well=False),
        went("away", 21.5),
    ]
    assert slowest_move(way) == 6.5
    assert slowest_move([Trip("home", "one", "m", 0.0, None, False), went("away", 60.0)]) == 0.0


def test_moves_are_counted_between_answers_not_between_tries() -> None:
    way = [went("home", 0.0), went("away", 2.0, well=False), went("home", 4.0)]
    assert most_moves(way) == 0
    assert most_moves([*way, went("away", 6.0), went("home", 8.0)]) == 2
    assert served([*way, went("away", 6.0)], ["away"]) == {"one"}
    assert served(way, ["away"]) == served(way, ["home"], since=5.0) == set()


@given(times=st.lists(st.floats(0, 100), min_size=1), since=st.floats(0, 100))
def test_a_herd_is_whoever_comes_within_ten_seconds_of_the_first_answer(
    times: list[float], since: float
) -> None:
    made = [went("home", at) for at in sorted(times)]
    later = [at for at in sorted(times) if at >= since]
    first = back_after(made, "home", since)
    assert (first is None) == (not later)
    if later:
        assert herd(made, "home", since) >= 1
        assert herd(made, "home", since) <= sum(at <= later[0] + 10.1 for at in later)
    assert herd(made, "away", since) == 0
