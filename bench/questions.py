"""How long it takes to find the answers to the usual questions in the pages that a gateway serves.

    python bench/questions.py [--quick]

Rules: (1) a real browser types the words and follows the first hit; that it answers is checked; (2)
typing and reading take as long as an unhurried person needs: 40 words typed and 200 words read in a
minute; what the machine needs is added as measured; (3) the limit is thirty seconds from the first
key to the first hit's page, and the reading of its section is told beside it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.dashboard.browser import chromium, opened
from tests.dashboard.service_thread import ServiceThread
from tests.documentation.questions import QUESTIONS, answer_of

TYPED_PER_MINUTE, READ_PER_MINUTE = 40.0, 200.0
MOST_SECONDS = 30.0


def main() -> int:
    """Ask everything; 1 when an answer is not found in time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the first words of each")
    quick = parser.parse_args().quick
    late = 0
    print(f"{'typed':<34}{'found after':>12}{'answer read':>13}")
    with (
        tempfile.TemporaryDirectory() as folder,
        ServiceThread(Path(folder)) as service,
        chromium() as browser,
        opened(browser, f"{service.url}/docs/", live=False) as page,
    ):
        for question in QUESTIONS:
            for typed in question.typed[:1] if quick else question.typed:
                began = time.monotonic()
                section, hit = answer_of(page, f"{service.url}/docs/", typed)
                machine = time.monotonic() - began
                writing = 60.0 * len(typed.split()) / TYPED_PER_MINUTE
                found = machine + writing + 60.0 * hit / READ_PER_MINUTE
                reading = 60.0 * len(section.split()) / READ_PER_MINUTE
                answered = all(words in section for words in question.answer)
                late += found > MOST_SECONDS or not answered
                note = "" if answered else "  NOT ANSWERED"
                print(f"{typed:<34}{found:>10.0f} s{reading:>11.0f} s{note}")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
