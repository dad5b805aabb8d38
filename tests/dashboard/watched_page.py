"""What the page shows at one moment, compared with a provider's ledger.

Rules: (1) a look is taken when the page has drawn what it received last, so that texts, numbers and
the time belong together; (2) nothing is compared with what the gateway says elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.dashboard.watched_drill import Entry, WatchedDrill

LOOK = """async () => {
	const { state } = await import("/_jackline/page/feed.js");
	const text = (query) => [...document.querySelectorAll(query)].map((each) => each.innerText);
	for (;;) {
		const seen = state.changes;
		await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
		if (state.changes === seen) return {
			at: state.at, live: state.live, verdict: text("#verdict")[0],
			keys: text(".fleet button.key"), cards: text(".card"), runs: text(".run"),
			money: text(".money")[0] || "",
		};
	}
}"""
SIZES = ((1440, 1000), (900, 1100), (420, 900))
# The provider hands out its answers in pieces so far apart, in real seconds, and no faster.
PIECE = 0.2
WAITING = ("queued", "throttled", "parked", "upstream down")


@dataclass(frozen=True)
class Seen:
    """One look at the page."""

    at: float
    live: bool
    verdict: str
    cards: list[str]
    runs: list[str]
    money: str
    states: dict[str, int] = field(default_factory=dict)

    def count(self, *words: str) -> int:
        return sum(self.states.get(word, 0) for word in words)


def look(page: Page) -> Seen:
    result: dict[str, Any] = page.evaluate(LOOK)
    keys = [re.fullmatch(r"\S ([a-z ]+) ([\d,]+)", each) for each in result.pop("keys")]
    states = {key[1]: int(key[2].replace(",", "")) for key in keys if key is not None}
    # The legend also names what was drawn, and is nobody's state any more.
    states = {word: count for word, count in states.items() if count}
    return Seen(**result, states=states)


def watch(page: Page, drill: WatchedDrill, besides: Callable[[Seen], None]) -> list[Seen]:
    """Look until the drill is over; `besides` is done after each new look."""
    looks: list[Seen] = []
    while not drill.over:
        seen = look(page)
        if seen.live and (not looks or seen.at != looks[-1].at):
            looks.append(seen)
            besides(seen)
        page.wait_for_timeout(100)
    return looks


def settled(page: Page, condition: Callable[[Seen], bool]) -> Seen:
    """The page once it has reached this; an error with what it shows when it does not."""
    looks = [look(page)]
    while not condition(looks[-1]):
        assert len(looks) < 600, looks[-1]  # a minute of looking, or more
        page.wait_for_timeout(100)
        looks.append(look(page))
    return looks[-1]


def pictures(page: Page, folder: Path, name: str) -> None:
    """The page at three sizes, none of which may be wider than its window."""
    folder = Path(os.environ.get("JACKLINE_SCREENSHOTS") or folder)
    folder.mkdir(parents=True, exist_ok=True)
    before = page.viewport_size
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        look(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=folder / f"{name}-{width}.png", full_page=True)
    if before is not None:
        page.set_viewport_size(before)


# --- by the ledger --------------------------------------------------------------------------------


def at_once(entries: Iterable[Entry], at: float, give: float) -> tuple[int, int]:
    """How many agents had a request with the provider around this time, at least and at most."""
    entries = list(entries)
    moments = sorted(
        {at - give, at + give}
        | {
            each
            for entry in entries
            for each in (entry.arrived, entry.ended or at + give)
            if abs(each - at) <= give
        }
    )
    counts = [
        len({e.agent for e in entries if e.arrived <= moment < (e.ended or moment + 1)})
        for moment in moments
    ]
    # Between two requests of an agent there may be a moment in which it has none.
    return min(counts), len(
        {e.agent for e in entries if e.arrived <= at + give and (e.ended or at) >= at - give}
    )


def answering_is_true(looks: Iterable[Seen], entries: list[Entry], give: float) -> None:
    """Agents shown as answering had a request with the provider, and the other way round."""
    for seen in looks:
        low, high = at_once(entries, seen.at, give)
        # The provider has requests that it keeps silent about: nobody is answered by those.
        silent = seen.count("upstream down") if any("silent" in card for card in seen.cards) else 0
        answering = seen.count("answering")
        assert answering <= high and low <= answering + silent, (seen, low, high)  # noqa: PT018


def waiting_is_true(looks: Iterable[Seen], entries: list[Entry], give: float) -> None:
    """Agents shown as waiting have no request with the provider."""
    everyone = len({entry.agent for entry in entries})
    for seen in looks:
        low, _ = at_once(entries, seen.at, give)
        assert seen.count(*WAITING) <= everyone - low, (seen, low)


def completed(entries: Iterable[Entry]) -> list[Entry]:
    """Whole answers; those to the same question count once.

    A busy machine's second is half a minute here: a gateway may give an answer up that comes, and
    ask again. What that took is counted as wasted, not as used.
    """
    done = (entry for entry in entries if entry.outcome == "completed")
    return list({(entry.agent, entry.body): entry for entry in done}.values())
