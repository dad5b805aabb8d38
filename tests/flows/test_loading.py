"""A flow is found in its file, freshly, or a sentence says what is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel

from jackline.errors import UsageError
from jackline.flows.api import resume, run
from jackline.flows.authoring.flow_definition import load_flow, split_reference
from jackline.flows.values import decode_arguments, encode_arguments, parse_arguments
from tests.flows.world import played, world

HEAD = "from jackline import agent, flow, parallel, step\n"


def written(folder: Path, text: str, name: str = "my_flow.py") -> Path:
    file = folder / name
    file.write_text(HEAD + text, encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def _paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_the_only_flow_or_the_named_one_is_found(tmp_path: Path) -> None:
    two = "@flow\nasync def one(): ...\n@flow\nasync def two(): ...\n"
    file = written(tmp_path, two)
    assert load_flow(f"{file}:two").name == "two"
    with pytest.raises(UsageError, match="has several flows: one, two") as caught:
        load_flow(str(file))
    assert caught.value.hint == "Say which: my_flow.py:one."
    single = written(tmp_path, "@flow\nasync def only(): ...\n", "single.py")
    assert load_flow(str(single)).name == "only"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "There is no flow in my_flow.py"),
        ("def f(:\n", r"my_flow.py cannot be loaded: line 2: "),
        ("\nimport nothing_like_this\n", "there is no module nothing_like_this"),
        ("1 / 0\n", r"ZeroDivisionError \(my_flow.py, line 2\)"),
        ("@flow\ndef f(): ...\n", "@flow needs an async function"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, says: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UsageError, match=says):
        load_flow(str(file))


def test_a_missing_file_or_flow_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no file"):
        load_flow(str(tmp_path / "gone.py"))
    file = written(tmp_path, "@flow\nasync def only(): ...\n")
    with pytest.raises(UsageError, match="There is no flow other") as caught:
        load_flow(f"{file}:other")
    assert caught.value.hint == "It has these: only."


@pytest.mark.parametrize(
    ("given", "file", "name"),
    [
        ("a.py", "a.py", ""),
        ("a.py:f", "a.py", "f"),
        ("C:\\x\\a.py", "C:\\x\\a.py", ""),
        ("C:\\x\\a.py:f", "C:\\x\\a.py", "f"),
        ("dir:1/a.py", "dir:1/a.py", ""),
    ],
)
def test_a_reference_is_a_file_and_perhaps_a_name(given: str, file: str, name: str) -> None:
    assert split_reference(given) == (Path(file), name)


def test_neighbours_can_be_imported_and_main_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "beside_my_flow.py").write_text("VALUE = 7\n")
    text = "from beside_my_flow import VALUE\n@flow\nasync def f() -> int: return VALUE\n"
    text += "if __name__ == '__main__':\n    raise SystemExit('run as main')\n"
    file = written(tmp_path, text)

    async def test() -> None:
        assert (await world().run(load_flow(str(file)))).value == 7

    played(test)


def test_an_edited_file_is_loaded_anew_and_only_changed_calls_run(tmp_path: Path) -> None:
    text = (
        "@flow\nasync def f(n: int) -> list[str]:\n"
        "    found = await parallel(agent(f'PROMPT {i}', label=str(i)) for i in range(n))\n"
        "    FAIL\n    return found.values\n"
    )
    file = written(tmp_path, text.replace("PROMPT", "say").replace("FAIL", "raise ValueError"))

    async def test() -> None:
        w = world(lambda task: task.prompt)
        outcome = await w.through(run(load_flow(str(file)), 3, host=w.host))
        assert outcome.exit_code == 1
        run_id = outcome.task_id
        edited = text.replace("'PROMPT {i}'", "'say {i}' if i else 'tell'").replace("FAIL", "pass")
        file.write_text(HEAD + edited)
        outcome = await w.through(resume(run_id, host=w.host))
        assert outcome.value == ["tell", "say 1", "say 2"]
        assert w.runner.begun.count("0") == 2
        assert len(w.runner.begun) == 4

    played(test)


def test_words_become_arguments_of_the_types_that_are_asked_for(tmp_path: Path) -> None:
    text = (
        "@flow\nasync def f(q: str, n: int = 3, tags: list[str] | None = None) -> str:\n"
        "    return f'{q} {n} {tags}'\n"
    )
    function = load_flow(str(written(tmp_path, text))).function
    data = parse_arguments(function, {"q": "12", "n": "5", "tags": '["a"]'})
    assert json.loads(data) == {"q": "12", "n": 5, "tags": ["a"]}
    assert decode_arguments(function, b'{"q": "x", "n": "7"}')["n"] == 7


class Place(BaseModel):
    name: str
    depth: float = 0.0


async def survey(
    topic: str,
    readers: int = 3,
    modules: list[str] | None = None,
    where: Place | None = None,
    mode: Literal["fast", "1"] = "fast",
    anything: object = None,
) -> str:
    return f"{topic} {readers} {modules} {where} {mode} {anything}"


@pytest.mark.parametrize(
    ("words", "says", "do"),
    [
        (
            {"topic": "x", "readers": "many"},
            "The argument readers of survey() takes a whole number, and text was given.",
            "Write it like this: --readers 3",
        ),
        (
            {"topic": "x", "modules": "parser"},
            "The argument modules of survey() takes a list of text or null, and text was given.",
            """Write it like this: --modules '["…"]'""",
        ),
        (
            {"topic": "x", "modules": "[1]"},
            (
                "The argument modules of survey() takes a list of text or null, and a list was "
                "given (0: Input should be a valid string)."
            ),
            """Write it like this: --modules '["…"]'""",
        ),
        (
            {"topic": "x", "where": '{"depth": 3}'},
            (
                "The argument where of survey() takes an object with name, depth or null, and an "
                "object was given (name: Field required)."
            ),
            """Write it like this: --where '{"name": "…"}'""",
        ),
        (
            {"topic": "x", "mode": "slow"},
            "The argument mode of survey() takes one of fast, 1, and text was given.",
            'Write it like this: --mode "fast"',
        ),
        ({"readers": "1"}, "survey() needs topic.", 'Write --topic "…" (it takes: topic: str, '),
        (
            {"topc": "x"},
            "survey() has no parameter topc (did you mean topic?), and needs topic.",
            'Write --topic "…" (it takes: topic: str, readers: int = 3, ',
        ),
        ({"topic": "x", "z": "1"}, "survey() has no parameter z.", "It takes: topic: str, "),
    ],
)
def test_a_fault_in_an_argument_names_it_what_it_takes_and_how_to_write_it(
    words: dict[str, str], says: str, do: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments(survey, words)
    assert caught.value.message == says
    assert caught.value.hint.startswith(do)


def test_a_word_is_text_where_only_text_fits() -> None:
    words = {"topic": "null", "mode": "1", "anything": "[1]"}
    assert json.loads(parse_arguments(survey, words)) == {
        "topic": "null",
        "mode": "1",
        "anything": [1],
    }


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topic": 5}, "The argument topic of survey() takes text, and int was given."),
        (
            {"topic": "x", "anything": object()},
            "The argument anything of survey() cannot be saved: object cannot be written as JSON.",
        ),
        ({}, "survey() cannot be called like this: missing a required argument: 'topic'."),
    ],
)
def test_a_fault_in_a_python_call_is_named_alike(given: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        encode_arguments(survey, (), given)
    assert caught.value.message == says


def test_a_run_whose_file_is_gone_says_so(tmp_path: Path) -> None:
    file = written(tmp_path, "@flow\nasync def f() -> None: raise ValueError\n")

    async def test() -> None:
        w = world()
        outcome = await w.through(run(load_flow(str(file)), host=w.host))
        file.unlink()
        with pytest.raises(UsageError, match="There is no file"):
            await resume(outcome.task_id, host=w.host)
        with pytest.raises(UsageError, match="There is no run zzz"):
            await resume("zzz", host=w.host)

    played(test)
