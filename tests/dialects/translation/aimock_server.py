"""Run an independent server that speaks both of OpenAI's dialects: aimock, from npm.

Rules: (1) it comes from the npm registry by name and version and is kept in .cache; (2) it listens
on loopback only, at a port that the system chose; (3) what cannot be had fails loudly.
Not here: what is asserted (test_aimock.py).
"""

from __future__ import annotations

import http.client
import re
import shutil
import subprocess
from pathlib import Path

from tests.real_clients.npm_packages import npm_command, unpacked

VERSION = "1.43.0"
FIXTURES = Path(__file__).parent / "data" / "aimock.json"


def aimock_folder() -> Path:
    """Where the server is, downloaded on first use."""
    return unpacked(f"@copilotkit/aimock@{VERSION}", f"aimock-{VERSION}") / "package"


class AimockServer:
    """The running server; a context manager."""

    def __enter__(self) -> AimockServer:
        program = aimock_folder() / "dist" / "cli.js"
        node = shutil.which("node") or npm_command()[0]
        self._process = subprocess.Popen(
            [node, str(program), "-p", "0", "-h", "127.0.0.1", "-f", str(FIXTURES)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        assert self._process.stdout is not None
        result = []
        for line in self._process.stdout:
            result.append(line)
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                return self
        self._process.wait()
        raise AssertionError(f"aimock did not start: {result}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait()

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body; of an answer that was cut off, what came of it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        heads = {"content-type": "application/json", "authorization": "Bearer x"}
        try:
            connection.request("POST", path, body, heads)
            response = connection.getresponse()
            try:
                return response.status, response.read()
            except http.client.IncompleteRead as cut:
                return response.status, cut.partial
        finally:
            connection.close()
