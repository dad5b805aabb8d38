"""`jackline simulate` says where it is, plays, and sums up when it is interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests import warm_processes
from tests.cli.commands import jackline
from tests.simulator.http_client import ask


@dataclass(frozen=True)
class At:
    port: int


def start(*arguments: str) -> subprocess.Popen[str]:
    return warm_processes.Popen(
        [sys.executable, "-m", "jackline", "simulate", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"},
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_it_plays_a_scenario_until_interrupted_and_sums_up(tmp_path: Path) -> None:
    scenario = tmp_path / "mine.toml"
    scenario.write_text('description = "x"\n[[rule]]\nprompt = "four"\ntext = "4"\n')
    with start(str(scenario), "--speed", "100", "--seed", "3") as process:
        address = line_of(process)
        assert "mine.toml: x" in address
        port = urlsplit(address.split()[0]).port
        assert port is not None
        assert "export ANTHROPIC_BASE_URL=http://127.0.0.1:" in line_of(process)
        assert ask(At(port), "four").json["content"][0]["text"] == "4"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, "")
    assert "1 requests: 1 useful, 0 wasted" in out
    assert re.search(r"^Bill: \$0\.000\d+ for \d+ input, 0 read from caches", out, re.MULTILINE)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_json_gives_the_address_first_and_the_ledger_last() -> None:
    with start("throttle-storm", "--json") as process:
        begun = json.loads(line_of(process))
        assert begun["scenario"] == "throttle-storm"
        assert begun["control"] == begun["url"] + "/_control/"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    assert json.loads(out)["ledger"]["requests"] == 0


def test_mistakes_are_reported_with_a_next_step(tmp_path: Path) -> None:
    missing = jackline("simulate", tmp_path / "none.toml")
    assert missing.code == 2
    assert "healthy, outage" in missing.err
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[[fault]]\neffect = 'hang'\nshare = 3\n")
    assert "fault[0].share" in jackline("simulate", wrong).err
