"""Search everything that the whole run of the tests has written for the planted words.

Rules: (1) once, after the last test, in the process that sees the files of all workers; (2) a leak
fails the run, whatever the tests said.
Not here: the words and the search (planted.py).
"""

from __future__ import annotations

import pytest

from tests.own_home import own_home
from tests.planted import leaks


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look through the temporary files of all tests, which pytest keeps until the next runs."""
    config = session.config
    if hasattr(config, "workerinput"):
        return  # its folder lies in that of the process that started it
    found = leaks(own_home())
    factory: pytest.TempPathFactory | None = getattr(config, "_tmp_path_factory", None)
    if factory is not None and getattr(factory, "_basetemp", None) is not None:
        found = [*found, *leaks(factory.getbasetemp())]
    if not found:
        return
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.section("planted secrets were written down", red=True)
        for path in found:
            reporter.write_line(path)
