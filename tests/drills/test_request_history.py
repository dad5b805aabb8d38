"""The requests of agents are read from all ledgers by one clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.drills.evaluation import AgentRequest, ProviderLedger, RequestHistory
from jackline.simulator.exchange import SimRequest
from jackline.simulator.ledger import RequestLedger, RequestOutcome


def request(host: str, arrived: float, *, completed: bool = True) -> AgentRequest:
    return AgentRequest(host, "one", "m", arrived, arrived + 1.0, completed)


def test_ledgers_are_read_by_one_clock_without_unknown_agents() -> None:
    ledgers = []
    for host, offset in (("home", 0.0), ("away", -7.0)):
        ledger = RequestLedger()
        for number, hash_ in enumerate(("known", "unknown")):
            entry = ledger.opened(number, 5.0, SimRequest(model="m", body_hash=hash_))
            ledger.ended(entry, 6.0, RequestOutcome.COMPLETED, "completed")
        ledgers.append(ProviderLedger(host, ledger, offset))
    history = RequestHistory.from_ledgers(ledgers, {"known": "one"})
    assert history == (request("away", -2.0), request("home", 5.0))


def test_a_move_is_timed_from_the_first_failure_to_the_start_of_what_succeeds() -> None:
    requests = [
        request("home", 0.0),
        request("home", 2.0, completed=False),
        request("home", 4.0, completed=False),
        request("away", 9.5),
        request("home", 20.0, completed=False),
        request("away", 21.5),
    ]
    assert RequestHistory(requests).slowest_move() == 6.5
    without_end = AgentRequest("home", "one", "m", 0.0, None, False)
    assert RequestHistory([without_end, request("away", 60.0)]).slowest_move() == 0.0


def test_moves_are_counted_between_answers_not_between_attempts() -> None:
    requests = [request("home", 0.0), request("away", 2.0, completed=False), request("home", 4.0)]
    history = RequestHistory(requests)
    assert history.most_moves() == 0
    assert RequestHistory([*requests, request("away", 6.0), request("home", 8.0)]).most_moves() == 2
    assert RequestHistory([*requests, request("away", 6.0)]).answered_by(["away"]) == {"one"}
    assert history.answered_by(["away"]) == history.answered_by(["home"], since=5.0) == set()


@given(times=st.lists(st.floats(0, 100), min_size=1), since=st.floats(0, 100))
def test_a_herd_is_what_comes_within_ten_seconds_of_the_first_answer(
    times: list[float], since: float
) -> None:
    history = RequestHistory(request("home", at) for at in sorted(times))
    later = [at for at in sorted(times) if at >= since]
    first = history.back_after("home", since)
    assert (first is None) == (not later)
    if later:
        assert history.herd("home", since) >= 1
        assert history.herd("home", since) <= sum(at <= later[0] + 10.1 for at in later)
    assert history.herd("away", since) == 0
