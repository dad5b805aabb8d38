"""Run all tests side by side, and the few that failed once more, each in quiet.

Rules: (1) a test that fails again fails the run; so do more than `MOST_AGAIN` failures, and any end
of the first run but by failed tests; (2) what failed beside others and passed alone is named at the
end: it is a fault, of the test or of the code, that somebody has to find (decision 090).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST_AGAIN = 5
_ROOT = Path(__file__).parents[1]
_LAST_FAILED = _ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
_TESTS_FAILED = 1


def main(arguments: Sequence[str]) -> int:
    """The exit status of all tests."""
    _LAST_FAILED.unlink(missing_ok=True)
    status = _pytest(arguments)
    failed = _failed()
    if status != _TESTS_FAILED or not 0 < len(failed) <= MOST_AGAIN:
        return status
    print(f"== once more, alone: {len(failed)} of the tests that failed", flush=True)
    again = [_pytest([name]) for name in failed]
    for name, result in zip(failed, again, strict=True):
        how = "FAILED AGAIN" if result else "FAILED BESIDE OTHERS, PASSED ALONE (mend it)"
        print(f"== {how}: {name}", flush=True)
    return next((result for result in again if result), 0)


def _pytest(arguments: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=_ROOT, check=False).returncode


def _failed() -> list[str]:
    if not _LAST_FAILED.exists():
        return []
    return sorted(json.loads(_LAST_FAILED.read_text("utf-8")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
