"""The fixture that we ship: one line per fault, and the truth in the ledger."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from jackline.simulator.limits import BucketSettings, Counts
from jackline.testing import Rule, Say, SimulatedProvider
from tests.simulator.http_client import ask


def test_one_line_per_fault(jackline_provider: SimulatedProvider) -> None:
    provider = jackline_provider
    lines: list[tuple[Callable[[], int], int]] = [
        (provider.throttle, 429),
        (provider.overload, 529),
        (provider.outage, 500),
        (provider.quota_wall, 429),
        (provider.captive_portal, 200),
    ]
    for line, status in lines:
        line()
        assert ask(provider).status == status
        provider.heal()
    assert provider.ledger.wasted == 5
    assert provider.url.startswith("http://127.0.0.1:")


def test_a_fault_can_be_for_one_model(simulated_provider: SimulatedProvider) -> None:
    simulated_provider.overload(model="opus")
    assert ask(simulated_provider, model="claude-opus-4-8").status == 529
    assert ask(simulated_provider, model="claude-haiku-4-5").status == 200


def test_replies_and_limits_can_be_set(jackline_provider: SimulatedProvider) -> None:
    jackline_provider.says(Rule(Say("four"), prompt="2+2"), Say("what?"))
    assert ask(jackline_provider, "2+2").json["content"][0]["text"] == "four"
    assert ask(jackline_provider, "x").json["content"][0]["text"] == "what?"
    jackline_provider.limits(BucketSettings(Counts.REQUESTS, 2))
    got = [ask(jackline_provider) for _ in range(3)]
    assert [one.status for one in got] == [200, 200, 429]
    remaining = [one.headers["anthropic-ratelimit-requests-remaining"] for one in got]
    assert remaining == ["1", "0", "0"]
    before = jackline_provider.ledger
    jackline_provider.reset_all()
    assert (len(before), len(jackline_provider.ledger)) == (3, 0)


def test_it_can_be_imported_without_pytest() -> None:
    program = "import sys; import jackline.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.split() == [b"False"]
