"""The service's log: text for people, one JSON document a line for programs."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from jackline.cli.foreground import log_to
from tests.planted import PROMPT


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    before = [
        (log, log.handlers[:], log.propagate, log.level)
        for log in map(logging.getLogger, ("jackline", "asyncio"))
    ]
    yield
    for log, handlers, propagate, level in before:
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)


def test_off_a_terminal_every_line_is_a_document() -> None:
    stream = io.StringIO()
    log_to(stream, "info")
    logging.getLogger("jackline").info("a lane is %s", "parked\nand more")
    logging.getLogger("jackline.gateway").warning("slow")
    reported = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(each["level"], each["message"]) for each in reported] == [
        ("info", "a lane is parked\nand more"),
        ("warning", "slow"),
    ]
    assert all(each["at"].endswith("+00:00") for each in reported)


def test_an_unexpected_error_is_reported_by_kind_and_place_without_its_words() -> None:
    stream = io.StringIO()
    log_to(stream, "info")
    error = ValueError(PROMPT)
    logging.getLogger("jackline").error("a bug", exc_info=error)
    (line,) = stream.getvalue().splitlines()
    assert "ValueError" in json.loads(line)["trace"]
    assert PROMPT not in line


def test_on_a_terminal_it_is_text() -> None:
    stream = Terminal()
    log_to(stream, "info")
    logging.getLogger("jackline").warning("slow")
    assert stream.getvalue().endswith("warning: slow\n")
