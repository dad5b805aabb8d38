"""A setting is declared once, and an error names only settings that exist."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

import jackline
from jackline.config.declaration import (
    DEFAULTS,
    FLAGS,
    ROOT,
    SETTINGS,
    VARIABLES,
    shown_value,
    variable_of,
)
from jackline.config.keys import dotted
from jackline.config.toml_writer import literal
from jackline.errors import BadConfigError
from jackline.settings import Form
from tests.config.places import Machine

SOURCES = Path(jackline.__file__).parent
NAMED = re.compile(rf"(?<![\w./-])((?:{'|'.join(ROOT)})(?:\.[a-z_][a-z_0-9]*)+)(?![\w(/])")
# Git has settings, too, that look like ours.
GIT = "foreign_repositories/guard.py"
FILES = (".py", ".db", ".jsonl")


def texts(path: Path) -> list[str]:
    """All texts of a file, also the parts of formatted ones, but no docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    docstrings = [node.value for node in nodes if isinstance(node, ast.Expr)]
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node not in docstrings
    ]


def test_every_setting_that_a_text_names_exists() -> None:
    known = {dotted(key[:length]) for key in SETTINGS for length in range(1, len(key) + 1)}
    found = {
        (path.relative_to(SOURCES).as_posix(), name)
        for path in SOURCES.rglob("*.py")
        for text in texts(path)
        for name in NAMED.findall(text)
        if not name.endswith(FILES)
    }
    assert len(found) > 30
    assert {(path, name) for path, name in found if name not in known and path != GIT} == set()


def out_of_range() -> list[tuple[tuple[str, ...], str]]:
    """Each setting that has bounds, with a value beyond each of them."""
    cases = []
    for key, one in SETTINGS.items():
        bounds = one.setting
        beyond = [
            None if bounds.least in (None, 0) else bounds.least - 1,
            -1 if bounds.least == 0 else None,
            None if bounds.most is None else bounds.most + 1,
            bounds.above,
            bounds.below,
        ]
        cases += [(key, repr(value)) for value in beyond if value is not None]
    return cases


@pytest.mark.parametrize(("key", "value"), out_of_range())
def test_an_error_about_a_value_out_of_range_names_its_own_key(
    machine: Machine, key: tuple[str, ...], value: str
) -> None:
    free = (*key, "x") if SETTINGS[key].has_free_names else key
    table = "[[upstream]]" if key[0] == "upstream" else f"[{key[0]}]"
    machine.write_own(f"{table}\n{dotted(free[1:])} = {value}\n")
    with pytest.raises(BadConfigError) as caught:
        machine.load()
    assert [fault.split(": ")[1] for fault in caught.value.faults] == [dotted(free)]


def test_bounds_are_tested_of_all_limits() -> None:
    tested = {dotted(key) for key, _ in out_of_range()}
    assert len(tested) >= 35
    assert {"limits.answer_time", "limits.body_pace", "limits.connections"} <= tested


def test_every_setting_has_a_variable_and_flags_name_settings() -> None:
    assert VARIABLES.keys() >= {variable_of(key) for key in DEFAULTS}
    assert set(VARIABLES.values()) == DEFAULTS.keys()
    assert set(FLAGS.values()) <= DEFAULTS.keys()
    assert FLAGS["afk"] == ("hold", "until_reset")


def test_every_default_is_a_value_that_may_be_written(machine: Machine) -> None:
    for key, value in DEFAULTS.items():
        if value is not None and key[0] != "upstream":
            text = f"{key[-1]} = {literal(shown_value(key, value))}\n"
            machine.write_own(text if len(key) == 1 else f"[{dotted(key[:-1])}]\n{text}")
            assert machine.load().shown[key] == value


def test_no_field_that_may_hold_a_secret_is_printed() -> None:
    secret = (Form.REFERENCE, Form.PROXY, Form.WEBHOOK, Form.HEADERS)
    found = {dotted(key) for key, one in SETTINGS.items() if one.setting.form in secret}
    assert {"listen.token", "upstream.proxy", "upstream.headers", "notify.webhook"} <= found
    for key, one in SETTINGS.items():
        table = ROOT[key[0]].table
        if one.setting.form in secret and table is not None:
            (field,) = (each for each in fields(table) if each.name == key[-1])
            assert not field.repr, key
