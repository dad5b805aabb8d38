"""A drill can be watched: it prints where, stays open at its end, and Ctrl-C ends it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from tests import warm_processes
from tests.cli.commands import jackline
from tests.ports import free_port


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_a_watched_drill_prints_where_and_stays_open_until_ctrl_c() -> None:
    port = free_port()
    command = [sys.executable, "-m", "jackline", "drill", "cascade", "--watch"]
    with warm_processes.Popen(
        [*command, "--port", str(port), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        lines: list[str] = []
        while not lines or "stays open until you press Ctrl-C" not in lines[-1]:
            lines.append(process.stderr.readline())
            assert lines[-1], "it did not stay open"
        where = next(line for line in lines if line.startswith("watch it: "))
        assert f"http://127.0.0.1:{port} " in where
        state = where.rpartition("--state ")[2].strip()
        page = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"accept": "text/html"})
        with urllib.request.urlopen(page, timeout=30) as answer:  # noqa: S310 -- the drill's own
            assert b"<title>jackline</title>" in answer.read()
        runs: list[dict[str, object]] = []
        for _ in range(60):
            # What is shown of runs may be some seconds old.
            top = jackline("status", "--watch", "--json", "--state", state)
            runs = json.loads(top.out)["runs"] if top.code == 0 else []
            if [run["state"] for run in runs] == ["finished"]:
                break
        shown_runs = [(run["flow"], run["state"], run["done"]) for run in runs]
        opened = jackline("open", "--print", "--state", state)
        # Before any assertion: without Ctrl-C the drill would never end.
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
    assert shown_runs == [("look_everywhere", "finished", 1)]
    assert opened.out.startswith(f"http://127.0.0.1:{port}/#token=")
    assert process.returncode == 0
    assert json.loads(out)["passed"] is True


def test_a_port_in_use_is_reported_before_anything_begins() -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        answer = jackline("drill", "cascade", "--port", str(used.getsockname()[1]))
    assert answer.code == 2
    assert "cannot be used" in answer.err
    assert "--port" in answer.err
