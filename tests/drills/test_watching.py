"""A drill can be watched: it says where, stays at its end, and Ctrl-C lets it come to an end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from tests.cli.commands import jackline
from tests.ports import free_port

pytestmark = pytest.mark.xdist_group("drills")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_a_watched_drill_says_where_and_stays_until_ctrl_c() -> None:
    port = free_port()
    command = [sys.executable, "-m", "jackline", "drill", "cascade", "--watch"]
    with subprocess.Popen(
        [*command, "--port", str(port), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        told: list[str] = []
        while not told or "stays until you press Ctrl-C" not in told[-1]:
            told.append(process.stderr.readline())
            assert told[-1], "it did not stay"
        where = next(line for line in told if line.startswith("watch it: "))
        assert f"http://127.0.0.1:{port} " in where
        state = where.rpartition("--state ")[2].strip()
        page = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"accept": "text/html"})
        with urllib.request.urlopen(page, timeout=30) as answer:  # noqa: S310 -- the drill's own
            assert b"<title>jackline</title>" in answer.read()
        runs: list[dict[str, object]] = []
        for _ in range(60):
            # What is shown of runs may be some seconds old.
            top = jackline("top", "--once", "--json", "--state", state)
            runs = json.loads(top.out)["runs"] if top.code == 0 else []
            if [run["state"] for run in runs] == ["finished"]:
                break
        told_runs = [(run["flow"], run["state"], run["done"]) for run in runs]
        opened = jackline("open", "--print", "--state", state)
        # Before anything is asserted: a drill that nobody leaves would be waited for without end.
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
    assert told_runs == [("look_everywhere", "finished", 1)]
    assert opened.out.startswith(f"http://127.0.0.1:{port}/#token=")
    assert process.returncode == 0
    assert json.loads(out)["passed"] is True


def test_a_port_that_is_taken_is_said_before_anything_begins() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = jackline("drill", "cascade", "--port", str(taken.getsockname()[1]))
    assert answer.code == 2
    assert "cannot be had" in answer.err
    assert "--port" in answer.err
