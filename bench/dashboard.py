"""Measure what the page costs a browser: with how many agents does it still keep up?

Rules: (1) the real page in a real Chromium before a real service, fed with calls that end all the
time; (2) a frame is measured where it is drawn, and long tasks by the browser itself; (3) sizes are
compared within one run: what a busy machine adds, it adds to all of them.
Not here: whether what is shown is true (tests/dashboard/).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.dashboard.browser import chromium, opened
from tests.dashboard.fleets import announce, hour_of_work
from tests.dashboard.service_thread import ServiceThread

SIZES = (36, 500, 5000)
# One frame at 60 a second.
BUDGET_MS = 16.0
# What a frame at the largest size may take of one at the smallest: only rows in sight are drawn.
MOST_GROWTH = 4.0
CHANGED_EACH_TIME = 50
WATCH = """
window.noted = { gaps: [], long: 0, replaced: 0 };
let last = performance.now();
const beat = (at) => { noted.gaps.push(at - last); last = at; requestAnimationFrame(beat); };
requestAnimationFrame(beat);
new PerformanceObserver((list) => { noted.long += list.getEntries().length; })
	.observe({ type: "longtask" });
const names = (node) => node.localName === "li" ? [node.innerText] : [];
new MutationObserver((records) => {
	// A row that is taken out and made anew, in one go, is what the eye sees as flicker.
	const gone = new Set(records.flatMap((each) => [...each.removedNodes].flatMap(names)));
	for (const each of records) for (const node of each.addedNodes)
		if (names(node).some((name) => gone.has(name))) noted.replaced += 1;
}).observe(document.querySelector(".names"), { childList: true });
frames_seen.length = 0;
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """The page with so many agents, over some seconds of live changes."""

    agents: int
    frames: int
    median_ms: float
    p95_ms: float
    rows: int
    """Most rows that a frame drew."""
    gap_median_ms: float
    """Between two frames of the browser, whoever drew them."""
    late: float
    """The share of the browser's frames that came a whole frame too late."""
    long_tasks: int
    """Times in which the page did not answer for 50 ms, by the browser's count."""
    replaced: int
    """Rows that were taken out and made anew."""


def measured(browser: Browser, agents: int, seconds: float) -> Cost:
    """The cost with so many agents."""
    with tempfile.TemporaryDirectory() as folder, ServiceThread(Path(folder)) as service:
        calls = 6 if agents > 1000 else 12
        events = hour_of_work(time.time(), agents, calls=calls)
        service.do(lambda running: announce(running, events))
        with opened(browser, service.url) as page:
            page.locator(".filters", has_text=f"{agents:,} agent").wait_for()
            _unfold(page)
            page.evaluate(WATCH)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                fresh = hour_of_work(time.time() + 60, min(agents, CHANGED_EACH_TIME), calls=1)
                service.do(partial(announce, events=fresh))
                page.wait_for_timeout(500)
            return _cost(agents, page.evaluate("frames_seen"), page.evaluate("noted"))


def _unfold(page: Page) -> None:
    """Show agents, not groups: they cost more to draw."""
    for _ in range(3):
        folded = page.locator(".names button[aria-expanded=false]")
        if folded.count():
            folded.first.click()
            page.wait_for_timeout(100)


def _cost(agents: int, frames: list[dict[str, float]], noted: dict[str, Any]) -> Cost:
    took = sorted(frame["took"] for frame in frames)
    return Cost(
        agents,
        len(took),
        round(statistics.median(took), 2),
        round(took[int(0.95 * (len(took) - 1))], 2),
        int(max(frame["rows"] for frame in frames)),
        round(statistics.median(noted["gaps"]), 1),
        round(sum(gap > 2 * BUDGET_MS for gap in noted["gaps"]) / len(noted["gaps"]), 3),
        noted["long"],
        noted["replaced"],
    )


def main() -> int:
    """Measure, print, and fail when the page does not keep up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three seconds for each size")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with chromium() as browser:
        measured(browser, SIZES[0], 2.0)  # the first page of a browser pays for its start
        costs = [measured(browser, size, 3.0 if given.quick else 12.0) for size in SIZES]
    small, middle, large = costs
    growth = large.median_ms / max(0.05, small.median_ms)
    held = middle.median_ms < BUDGET_MS and growth < MOST_GROWTH
    held = held and not any(cost.replaced for cost in costs)
    if given.json:
        told = {"costs": [asdict(cost) for cost in costs], "growth": round(growth, 2), "held": held}
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        for cost in costs:
            sys.stdout.write(
                f"{cost.agents:>5} agents: {cost.frames} frames, median {cost.median_ms} ms,"
                f" p95 {cost.p95_ms} ms, at most {cost.rows} rows; {cost.gap_median_ms} ms between"
                f" frames, {cost.late:.1%} of them late, {cost.long_tasks} long tasks,"
                f" {cost.replaced} rows replaced\n"
            )
        sys.stdout.write(f"a frame with {large.agents} costs {growth:.1f} times one with 36\n")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
