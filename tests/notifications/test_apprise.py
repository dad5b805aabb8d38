"""The real Apprise, from the package index, sends a message to an address of its own kind."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.notifications.diagnosed import diagnosed
from tests.notifications.webhooks import receiver

ROOT = Path(__file__).parents[2]
WANTED = "apprise>=2.2"
CACHE = ROOT / ".cache" / "extras" / "apprise"


def installed() -> Path:
    """Where the extra's package is; installed on first use, saved in .cache."""
    if not CACHE.exists():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
            fresh = Path(folder) / "packages"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(fresh)]
            constraints = ["--constraint", str(ROOT / "constraints.txt")]
            subprocess.run([*command, *constraints, WANTED], check=True)
            # Moved as a whole, so that two test processes cannot see each other's half of it.
            with suppress(OSError):
                fresh.rename(CACHE)
    return CACHE


def test_apprise_gets_the_message_at_its_own_address_and_a_wrong_one_is_named_by_its_number(
    tmp_path: Path,
) -> None:
    targets, file = tmp_path / "targets", tmp_path / "own.toml"
    file.write_text(f'[notify]\napprise = "file:{targets}"\n')
    env = {"PYTHONPATH": str(installed())}
    with receiver(200) as kept:
        targets.write_text(kept.url.replace("http://", "json://"))
        done = diagnosed(file, **env)["notify apprise"]
        assert (done["mark"], done["says"]) == ("ok", "a test message was sent")
        targets.write_text("nonsense://T0K3N")
        wrong = diagnosed(file, **env)["notify apprise"]
    ((_, body),) = kept.got
    assert json.loads(body)["title"] == "Jackline: a test"
    assert wrong["mark"] == "fail"
    assert "address number 1 is none that Apprise knows" in wrong["says"]
    assert "T0K3N" not in str(wrong)


def test_without_the_extra_it_shows_what_to_install(tmp_path: Path) -> None:
    targets, file = tmp_path / "targets", tmp_path / "own.toml"
    targets.write_text("json://127.0.0.1:9/")
    file.write_text(f'[notify]\napprise = "file:{targets}"\n')
    done = diagnosed(file)["notify apprise"]
    assert done["mark"] == "fail"
    assert "jackline[notify]" in done["says"]
