"""A web page in the user's browser while `jackline simulate` runs: it changes and reads nothing."""

from __future__ import annotations

from jackline.testing import SimulatedProvider
from tests.attacks.test_page import page_elsewhere
from tests.dashboard.browser import chromium, opened
from tests.simulator.http_client import ask, send

TRIES = """
async (target) => {
  const fault = JSON.stringify({effect: "throttled"});
  const tried = (promise) => promise.then(async (r) => [r.type, await r.text()], () => "refused");
  const said = [];
  for (const path of ["/_control/faults", "/_control/reset", "/_control/settings"]) {
    const to = target + path;
    said.push(await tried(fetch(to, {method: "POST", mode: "no-cors", body: fault})));
    said.push(await tried(fetch(to, {method: "POST", body: fault})));
    navigator.sendBeacon(to, fault);
  }
  said.push(await tried(fetch(target + "/_control/ledger")));
  said.push(await tried(fetch(target + "/_control/faults", {method: "DELETE"})));
  return said;
}
"""


def test_a_page_in_chromium_changes_nothing_of_a_simulator_and_reads_nothing() -> None:
    with (
        SimulatedProvider() as simulated,
        page_elsewhere() as page_url,
        chromium() as browser,
    ):
        ask(simulated)
        url = simulated.url
        for target in (url, url.replace("127.0.0.1", "localhost")):
            with opened(browser, page_url, errors_expected=True, live=False) as page:
                said = page.evaluate(TRIES, target)
            assert len(said) == 8
            assert all(found in ("refused", ["opaque", ""]) for found in said), said
        assert send(simulated, "GET", "/_control/faults").json["faults"] == []
        assert send(simulated, "GET", "/_control/summary").json["requests"] == 1
