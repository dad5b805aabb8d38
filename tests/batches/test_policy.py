"""Laws of the policy: nothing runs by default, and no trick gets round what was allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackline.batches.batch import BatchCall
from jackline.batches.fetch import FetchTool
from jackline.batches.files import ReadTool, WriteTool
from jackline.batches.policy import Allowed, Denied, Judgement, Policy
from jackline.batches.search import SearchTool
from jackline.batches.shell import ShellTool
from jackline.batches.tool import JsonObject, Tool

FOLDER = Path("/home/me/project")
POLICY = Policy(
    FOLDER,
    allow=(
        "pytest *",
        "git log *",
        "make lint",
        "head *",
        "write:docs/*",
        "fetch:https://docs.python.org/*",
    ),
    windows=False,
)


def judge(tool: Tool, policy: Policy = POLICY, **arguments: object) -> Judgement:
    return policy.judge(BatchCall("1", tool, arguments))


def test_by_default_only_reading_and_searching_inside_the_folder_is_allowed() -> None:
    bare = Policy(FOLDER)
    assert judge(ReadTool(), bare, path="a/b.txt") == Allowed()
    assert judge(SearchTool(), bare, pattern="x") == Allowed()
    others: list[tuple[Tool, JsonObject]] = [
        (ShellTool(), {"command": "ls"}),
        (ShellTool(), {"argv": ["ls"]}),
        (WriteTool(), {"path": "a"}),
        (FetchTool(), {"url": "https://docs.python.org/3/"}),
    ]
    for tool, arguments in others:
        denied = judge(tool, bare, **arguments)
        assert isinstance(denied, Denied)
        assert denied.next


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "~/x", "a/../../x", "a\0b", "/home/me/project-other/x"]
)
def test_nothing_outside_may_be_read(path: str) -> None:
    for tool in (ReadTool(), SearchTool(), WriteTool()):
        assert isinstance(judge(tool, path=path), Denied)


@pytest.mark.parametrize(
    "command",
    [
        "pytest",
        "pytest tests/test_a.py::test_b -x",
        "git log -3 --format='%H %s'",
        "git log main..HEAD",
        "make lint",
        "git log | head -5",
        "pytest /home/me/project/tests 2>&1 | head",
        "pytest -k 'a or b'",
    ],
)
def test_what_was_allowed_may_run(command: str) -> None:
    assert judge(ShellTool(), command=command) == Allowed()


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf .",
        "git push",
        "make lint install",
        "make",
        "pytestx",
        "pytest; rm x",
        "pytest && rm x",
        "pytest || rm x",
        "pytest & rm x",
        "pytest | sh",
        "pytest\nrm x",
        "pytest $(rm x)",
        'pytest "$(rm x)"',
        "pytest `rm x`",
        "pytest > ../x",
        "pytest > x",
        "pytest 2> x",
        "pytest < /etc/passwd",
        "pytest <(rm x)",
        "pytest $HOME",
        "pytest ${X}",
        "pytest {a,../b}",
        "pytest ~/x",
        "pytest ../other",
        "pytest /etc",
        "pytest --rootdir=/etc",
        "pytest --rootdir=../x",
        "pytest -c/etc/x",
        "pytest -c../x",
        "pytest -xf/etc/x",
        "pytest -xzf../x",
        "pytest -xf~/x",
        "pytest @/etc/x",
        "pytest file:///etc/x",
        "pytest a:/etc/x",
        "pytest .*/x",
        "pytest .?/x",
        "pytest a/.[.]/x",
        "PYTHONPATH=/tmp pytest",
        "env pytest",
        "./pytest",
        "'pytest ' x",
        "pytest 'a",
        "! pytest",
        "",
        " ",
    ],
)
def test_no_trick_gets_round_the_allowed_patterns(command: str) -> None:
    assert isinstance(judge(ShellTool(), command=command), Denied)


def test_argv_is_judged_by_the_same_rules() -> None:
    assert judge(ShellTool(), argv=["pytest", "; rm x"]) == Allowed()  # one word, no shell
    assert isinstance(judge(ShellTool(), argv=["pytest", "../x"]), Denied)
    assert isinstance(judge(ShellTool(), argv=["rm"]), Denied)
    assert isinstance(judge(ShellTool(), argv=[]), Denied)
    assert isinstance(judge(ShellTool(), command="pytest", cwd=".."), Denied)


def test_a_star_alone_allows_no_command() -> None:
    assert isinstance(judge(ShellTool(), Policy(FOLDER, allow=("*",)), command="ls"), Denied)


def test_writing_and_fetching_are_allowed_by_pattern() -> None:
    assert judge(WriteTool(), path="docs/a.md") == Allowed()
    assert isinstance(judge(WriteTool(), path="docs/../src/a.py"), Denied)
    assert isinstance(judge(WriteTool(), path="src/a.py"), Denied)
    assert judge(FetchTool(), url="https://docs.python.org/3/") == Allowed()
    assert isinstance(judge(FetchTool(), url="https://evil.example/docs.python.org/"), Denied)
    assert isinstance(judge(FetchTool(), url=5), Denied)


def test_on_windows_only_plain_words_are_read() -> None:
    policy = Policy(Path("C:/project"), allow=("pytest *", "type *"), windows=True)
    assert judge(ShellTool(), policy, command="pytest -x tests") == Allowed()
    for command in (
        "pytest & del x",
        "pytest %TEMP%",
        "type C:\\secret",
        "type ..\\secret",
        "type \\x",
    ):
        assert isinstance(judge(ShellTool(), policy, command=command), Denied)


def test_a_denial_says_what_would_help() -> None:
    denied = judge(ShellTool(), command="npm test")
    assert denied == Denied(
        "the command `npm` is not allowed with these words",
        "the user may add 'npm *' to what is allowed; reading and searching always are",
    )
    chained = judge(ShellTool(), command="pytest; ls")
    assert isinstance(chained, Denied)
    assert "a call of its own" in chained.next
