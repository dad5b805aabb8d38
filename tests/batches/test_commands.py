"""Laws of reading command lines: exactly the shell's words or a refusal; known commands only."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jackline.batches.commands import NotSimpleError, read_command
from jackline.batches.known_commands import changes_nothing, program, usually_prints

SHOW = 'for word in "$@"; do printf "%s\\0" "$word"; done'

LINES = st.text(st.sampled_from("ab $'\"\\|&;<>()`{}#!~*?=-/.,0129%^\n\t@+:é"), max_size=12)


@pytest.mark.skipif(os.name == "nt", reason="compares with a POSIX shell")
@settings(max_examples=300)
@given(LINES)
@example("a'b'\"c\"\\d")
@example('"\\a\\"\\$"')
@example("a2>&1")
@example("a 1>&2")
@example("'a")
@example("a#b #c")
@example("a=b")
@example("a !b")
@example("-\\")
def test_a_line_that_is_read_means_exactly_these_words_to_the_shell(line: str) -> None:
    try:
        stages = read_command(f"show {line}")
    except NotSimpleError:
        return
    # Only the reading of words is compared: what comes after the first program must not run.
    if len(stages) != 1 or any(word.globbed or word.homed for word in stages[0].words):
        return
    done = subprocess.run(
        ["bash", "-c", f"show() {{ {SHOW}; }}; show {line}"],
        capture_output=True,
        check=True,
    )
    silenced = stages[0].silenced
    on_output = (done.stdout + done.stderr).decode().split("\0")[:-1]
    assert silenced or on_output == list(stages[0].texts[1:])


@given(st.lists(st.text(max_size=8).filter(lambda text: "\0" not in text), min_size=1))
def test_quoted_words_come_back_as_they_were(words: list[str]) -> None:
    line = shlex.join(["show", *words])
    try:
        read = read_command(line)[0].texts
    except NotSimpleError:
        raise AssertionError(line) from None
    assert read == ("show", *words)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("echo $(rm x)", "substitution"),
        ("echo `rm x`", "backticks"),
        ('echo "$(rm x)"', "substitution"),
        ("echo $HOME", "variable"),
        ("(ls)", "parentheses"),
        ("ls > out", "output into a file"),
        ("ls >> out", "output into a file"),
        ("ls 2> out", "output into a file"),
        ("ls >/dev/null/../x", "output into a file"),
        ("cat < in", "input from a file"),
        ("cat <(ls)", "input from a file"),
        ("sleep 9 &", "background"),
        ("ls\nrm x", "more than one line"),
        ("LD_PRELOAD=x ls", "variable set"),
        ("ls {a,b}", "braces"),
        ("ls # all", "comment"),
        ("! ls", "negation"),
        ("ls 'a", "not closed"),
        ("ls &&", "command is missing"),
        ("| ls", "command is missing"),
        ("", "command is missing"),
    ],
)
def test_what_only_a_shell_can_read_is_refused_by_name(line: str, why: str) -> None:
    with pytest.raises(NotSimpleError, match=why):
        read_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "ls",
        "/bin/ls -la",
        "cat a b 2>/dev/null | grep -n x | wc -l",
        "cd src && ls; pwd",
        "find . -name '*.py'",
        "git log --oneline -5",
        "git branch -a",
        "sort file | head -5",
        "python --version",
        "true >/dev/null 2>&1",
    ],
)
def test_known_lookers_change_nothing(line: str) -> None:
    assert changes_nothing(line)


@pytest.mark.parametrize(
    "line",
    [
        "rm x",
        "ls; rm x",
        "ls | xargs rm",
        "find . -delete",
        "find . -exec rm {} +",
        "find . -fprint x",
        "find *",
        "ls *.py",
        "printf -v x y",
        "test -v x",
        "git push",
        "git -c core.pager=x log",
        "git log --output=x",
        "git branch new",
        "git diff --ext-diff",
        "git log --outpu=x",
        "git grep -Ovi x",
        "git grep -nOvi x",
        "sort -o x y",
        "sort -ro x y",
        "sort --compress-program=x y",
        "uniq a b",
        "sed -i s/a/b/ x",
        "sed -n 'w x' y",
        "awk 'BEGIN{system(\"rm x\")}'",
        "env rm x",
        "date -s tomorrow",
        "hostname evil",
        "rg --pre rm x",
        "tree -o x",
        "xxd -r a b",
        "./ls",
        "tmp/cat x",
        "tee x",
        "echo a > b",
        "cat $X",
        "pytest",
        "python x.py",
        "command rm x",
        "l's' && r'm' x",
        "unknown-program",
    ],
)
def test_whatever_may_change_something_is_not_called_harmless(line: str) -> None:
    assert not changes_nothing(line)


def test_no_command_line_of_windows_is_called_harmless() -> None:
    assert not changes_nothing("dir", windows=True)
    assert read_command("git log -3", windows=True)[0].texts == ("git", "log", "-3")
    for line in ("dir & del x", "echo %PATH%", 'type "a b"', "a ^& b", "a | b", "a > b"):
        with pytest.raises(NotSimpleError):
            read_command(line, windows=True)


@pytest.mark.parametrize(
    "line",
    [
        "ls",
        "cat file",
        "grep -c x file",
        "grep x file",
        "git log",
        "git status",
        "wc -l file",
        "pytest -q",
        "python -m pytest tests",
        "npm test",
        "cargo test",
        "cd a && ls",
        "ls | head",
        "echo hi",
        "node --version",
    ],
)
def test_silence_of_these_would_be_strange(line: str) -> None:
    assert usually_prints(line)


@pytest.mark.parametrize(
    "line",
    [
        "grep -q x file",
        "grep --quiet x file",
        "ls > out",
        "ls >/dev/null",
        "git diff",
        "git status --short",
        "grep x file | head",
        "grep x file || true",
        "true",
        "cd a",
        "touch x",
        "find . -name x",
        "make",
        "echo",
        "git commit -m x",
    ],
)
def test_silence_of_these_is_ordinary(line: str) -> None:
    assert not usually_prints(line)


@pytest.mark.parametrize(
    ("line", "name"),
    [("grep x", "grep"), ("/usr/bin/env ls", "env"), ("X=1 make", "X=1"), ("", "shell")],
)
def test_a_failure_is_named_by_its_program(line: str, name: str) -> None:
    assert program(line) == name
