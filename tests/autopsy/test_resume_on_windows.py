"""A resume command is safe in every shell that it may be pasted into, or it is not given."""

from __future__ import annotations

import pytest

from jackline.autopsy import html_report, text_report
from jackline.autopsy.report import ResumeOption, build, resume_options
from jackline.transcripts.story import AgentStory, Role
from tests.autopsy.story_makers import after, evidence, overload, stopped


def story_in(cwd: str) -> AgentStory:
    return stopped("a", overload(), role=Role.MAIN, session_id="5e55", cwd=cwd)


def way_of(cwd: str, *, windows: bool = True) -> ResumeOption:
    (way,) = resume_options([(story_in(cwd), None)], now=after(200), windows=windows)
    return way


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize(
    ("cwd", "quoted"),
    [
        ("C:\\me", '"C:\\me"'),
        ("D:\\R&D (new)\\it's ^ mine", '"D:\\R&D (new)\\it\'s ^ mine"'),
        ("C:/Users/Jürgen", '"C:/Users/Jürgen"'),
        ("C:\\ends in one\\", '"C:\\ends in one"'),  # it would escape the quote in a POSIX shell
        ("C:\\", '"C:/"'),
    ],
)
def test_a_folder_on_a_drive_is_entered_in_any_shell_of_windows(
    cwd: str, quoted: str, windows: bool
) -> None:
    """In cmd.exe a `cd` stays on its drive, and single quotes are letters like others."""
    assert way_of(cwd, windows=windows).command == f"pushd {quoted} && claude --resume 5e55"


@pytest.mark.parametrize(
    "cwd",
    [
        "C:\\%TEMP%",  # cmd.exe, within quotes as well
        "C:\\!TEMP!",
        'C:\\a" & calc & "',
        "C:\\$(calc)",  # PowerShell and POSIX shells
        "C:\\`calc`",
        "C:\\a\u201d; calc; \u201c",  # PowerShell takes these for quotes
        "C:\\a\uff02 & calc",
        "C:\\a|calc",
        "C:\\doubled\\\\",
        "\\\\server\\share",  # no folder of a drive
    ],
)
def test_a_folder_that_no_quotes_make_safe_gives_no_command_and_says_so(cwd: str) -> None:
    way = way_of(cwd)
    assert way.command is None
    assert way.then is not None
    assert way.then.endswith("claude --resume 5e55")
    assert cwd not in way.then
    report = build(evidence(story_in(cwd)), now=after(200))
    assert report.to_json()["resume"] == [
        {"command": None, "then": way.then, "agents": ["a"], "not_before": None}
    ]
    for rendering in (text_report.render(report), html_report.page(report)):
        assert "by hand" in rendering
        assert "then go" not in rendering


def test_on_windows_no_folder_is_put_into_single_quotes() -> None:
    """In cmd.exe they quote nothing: what stands behind an ampersand there is run."""
    here, there = (way_of("/x & calc &'s", windows=windows) for windows in (False, True))
    assert here.command == """cd -- '/x & calc &'"'"'s' && claude --resume 5e55"""
    assert there.command == """pushd "/x & calc &'s" && claude --resume 5e55"""
    assert way_of("/x/%TEMP%", windows=True).command is None
    assert way_of("/x/%TEMP%", windows=False).command == "cd -- /x/%TEMP% && claude --resume 5e55"
