"""Timers of this system as they are: the `at` daemon, and a systemd of the user's own.

Rules: (1) what is missing is installed from the distribution by name; (2) what cannot be had fails
loudly in CI: a skipped test proves nothing; (3) nothing of the machine's own services is touched:
the systemd here has a mount namespace and control groups of its own.
Not here: what is promised of timers (test_timers_for_real.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.debian_packages import installed_program

PATIENCE = 180.0  # only a test that fails ever waits so long
# A user's systemd wants a machine that was booted by one, and control groups that are its own.
_MANAGER = """
mount -t tmpfs tmpfs /run/systemd && mkdir -p /run/systemd/system || exit 70
mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit 71
group=/sys/fs/cgroup/$2
mkdir -p "$group" && echo $$ > "$group/cgroup.procs" || exit 72
env -i HOME="$1" XDG_RUNTIME_DIR="$3" PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --user --log-target=null &
trap 'kill $!' TERM
wait $!
wait $!
echo $$ > /sys/fs/cgroup/cgroup.procs
find "$group" -depth -type d -exec rmdir {} +
"""


def needs_root() -> None:
    """Only root may make namespaces, install packages and start daemons; CI is root."""
    if sys.platform != "linux" or os.geteuid() != 0:
        assert not os.environ.get("CI"), "in CI these run as root on Linux"
        pytest.skip("needs root on Linux, as in CI")


@contextmanager
def at_daemon() -> Iterator[None]:
    """The daemon of `at`; the machine's own, if it has one running."""
    daemon = installed_program("at", "atd")
    with subprocess.Popen([daemon, "-f"], stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            # It ends by itself when there is another one.
            process.terminate()


@contextmanager
def user_systemd(home: Path) -> Iterator[Mapping[str, str]]:
    """A systemd for a user whose home this is; the variables by which `systemctl --user` finds it.

    `systemctl` speaks with it through a socket, whose path has to be short.
    """
    installed_program("systemd", "systemctl")
    group = f"jackline-test-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="jl") as runtime:
        Path(runtime).chmod(0o700)
        settings = str(home / ".config")
        environ = {
            "HOME": str(home),
            "XDG_RUNTIME_DIR": runtime,
            "XDG_CONFIG_HOME": settings,
            # What that systemd starts looks there, too: commands must find the same key.
            "XDG_STATE_HOME": str(home / ".local" / "state"),
        }
        words = ["unshare", "--mount", "--cgroup", "--propagation", "private", "/bin/sh", "-c"]
        with subprocess.Popen(
            [*words, _MANAGER, "sh", str(home), group, runtime],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                _wait_until_it_answers(process, environ)
                yield environ
            finally:
                process.terminate()
                process.communicate(timeout=PATIENCE)


def _wait_until_it_answers(process: subprocess.Popen[bytes], environ: Mapping[str, str]) -> None:
    deadline = time.monotonic() + PATIENCE
    asking = ["systemctl", "--user", "is-active", "timers.target"]
    while True:
        answer = subprocess.run(
            asking, env={**os.environ, **environ}, capture_output=True, check=False
        )
        if answer.stdout.strip() == b"active":
            return
        if process.poll() is not None:
            _, output = process.communicate()
            raise AssertionError(f"no systemd could be started: {process.returncode} {output!r}")
        assert time.monotonic() < deadline, answer.stderr
        time.sleep(0.1)
