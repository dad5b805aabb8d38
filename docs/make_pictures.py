"""Make the README's pictures from one run of the demo: the page, and what the terminal prints.

    python docs/make_pictures.py            # writes docs/page.png and docs/demo.svg; half a minute

Rules: (1) both show the same measured run, with its own words and numbers; (2) the page is a
screenshot of a real browser while the run is in its outage; (3) the recording is one SVG without
script, which stands still for readers who want no motion.
"""

from __future__ import annotations

import asyncio
import sys
import time
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.dashboard.browser import chromium, opened

from jackline import event_loop
from jackline.drills.demo import SCENES, Demo, Stage

DOCS = Path(__file__).parent
SPEED = 8.0
# The recording shows the demo's three minutes in so many seconds.
_SHOWN_SECONDS = 24.0
_COLUMNS, _ROW, _CHARACTER = 112, 19, 7.8
_OUTAGE = SCENES[-1].title.partition(":")[0]


class Recording:
    """Every printed line with its moment."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str]] = [(0.0, "$ jackline demo")]
        self.page = ""
        self.in_outage = asyncio.Event()
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """One sentence of the demo."""
        at = time.monotonic() - self._began
        self.lines += [(at, line) for line in text.split("\n")]
        if text.startswith("The page: "):
            self.page = text.split()[2]
        if _OUTAGE in text:
            self.in_outage.set()


def take_screenshot(address: str) -> bytes:
    """The page as it is now."""
    with chromium() as browser, opened(browser, address, height=760, width=1280) as page:
        page.wait_for_timeout(1500)
        return page.screenshot()


async def play() -> tuple[Recording, bytes]:
    """One demo, and its page in the outage."""
    recording = Recording()
    demo = Demo(SPEED, Stage.at(None, recording.say), recording.say)
    running = asyncio.create_task(demo.run())
    await recording.in_outage.wait()
    picture = await asyncio.to_thread(take_screenshot, recording.page)
    result = await running
    if not result.passed:
        raise SystemExit("the demo did not pass: no picture is made of it")
    return recording, picture


def svg(recording: Recording) -> str:
    """The recording: lines that appear at their moments."""
    shown = [(at, line[:_COLUMNS]) for at, line in recording.lines]
    last = shown[-1][0] or 1.0
    width, height = round(_COLUMNS * _CHARACTER) + 32, len(shown) * _ROW + 32
    rows = []
    for number, (at, line) in enumerate(shown):
        kind = "t" if line[1:2] == ":" else "j" if "Jackline  " in line[:18] else ""
        delay = _SHOWN_SECONDS * at / last
        y = 28 + number * _ROW
        rows.append(
            f'<text x="16" y="{y}" class="{kind}" style="animation-delay:{delay:.1f}s"'
            f' xml:space="preserve">{escape(line)}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        ' role="img" aria-label="What jackline demo prints">\n'
        "<style>text{font:13px ui-monospace,'DejaVu Sans Mono',Consolas,monospace;fill:#c9d1d9;"
        "animation:show .2s both}.t{fill:#e0a23a}.j{fill:#35b58a}"
        "@keyframes show{from{opacity:0}to{opacity:1}}"
        "@media(prefers-reduced-motion:reduce){text{animation:none}}</style>\n"
        f'<rect width="{width}" height="{height}" rx="10" fill="#0d1014"/>\n'
        + "\n".join(rows)
        + "\n</svg>\n"
    )


def main() -> int:
    """Write both pictures."""
    recording, picture = event_loop.run(play())
    (DOCS / "page.png").write_bytes(picture)
    (DOCS / "demo.svg").write_text(svg(recording), "utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
