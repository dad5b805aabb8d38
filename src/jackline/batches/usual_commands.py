"""Know a few dozen commands: which only look, which options give them power, which print.

Laws: (1) pure; (2) what is not known here may change things; an option that lets a harmless program
write, start another or read what no word names takes its harmlessness away; (3) silence is strange
only where the exit code says that there was something to print.
Not here: git (git_commands.py), reading the command line (commands.py), running it again
(batch.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TypeAlias

from jackline.batches.commands import NotSimpleError, Stage, Word, read_command
from jackline.batches.git_commands import PLAIN_WRAPPERS, looks

_SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"})


def _names(told: str) -> frozenset[str]:
    return frozenset(told.split())


_HARMLESS = _names(
    "[ arch base32 base64 basename cat cd cmp column comm cut df dirname echo expand expr false "
    "fmt fold groups head hexdump id locale nl nproc od paste printenv pwd readlink realpath rev "
    "seq stat sum tac tail test tr true type uname unexpand uptime which whoami"
)

_VERSIONED = _names(
    "bun cargo cmake deno docker gcc go java make node npm pip pip3 pnpm python python3 ruby rustc "
    "ruff uv yarn"
)


_Check: TypeAlias = Callable[[Sequence[str]], bool]


def _operands(words: Sequence[str]) -> list[str]:
    """The words that are no options; behind `--` stand none."""
    end = words.index("--") if "--" in words else len(words)
    return [word for word in words[:end] if word[:1] != "-" or word == "-"] + [*words[end + 1 :]]


def _none_of(pattern: str) -> _Check:
    refused = re.compile(pattern)
    return lambda words: not any(refused.match(word) for word in words)


def _without(shorts: str, *longs: str) -> _Check:
    """No word is, or may be, one of these options.

    A long one may be cut (`--compi`), a short one stand among others or be followed by its value.
    """

    def refused(word: str) -> bool:
        if not word.startswith("--"):
            return word.startswith("-") and not set(shorts).isdisjoint(word[1:])
        name = word.partition("=")[0]
        return len(name) > 2 and any(long.startswith(name) for long in longs)

    return lambda words: not any(map(refused, words))


def _both(one: _Check, other: _Check) -> _Check:
    return lambda words: one(words) and other(words)


# What follows links below a folder, or reads a list of files, reads outside of it; so does `-c` of
# checksums, which tells of files that it is told to compare.
_GREP = _without("R", "--dereference-recursive")
_SUMS = _without("c", "--check")


_HARMLESS_WITH: dict[str, _Check] = {
    **dict.fromkeys(("egrep", "fgrep", "grep"), _GREP),
    **dict.fromkeys(("b2sum", "cksum", "md5sum", "sha1sum", "sha224sum", "sha256sum"), _SUMS),
    **dict.fromkeys(("sha384sum", "sha512sum"), _SUMS),
    "command": lambda words: len(words) == 2 and words[0] in ("-v", "-V"),
    "date": lambda words: all(re.match(r"\+|-u$|--utc|-R$|-I|--iso", word) for word in words),
    # Links below a folder are looked for on the disk (links.py).
    "diff": _without("l", "--paginate"),
    "du": _without("L", "--files0-from", "--dereference"),
    "env": lambda words: not words,
    "file": _without("Cfm", "--compile", "--files-from", "--magic-file"),
    "find": _none_of(r"-(exec|ok|delete|fprint|fls|files0-from|follow|[HLP]*[HL])"),
    "git": looks,
    "hostname": lambda words: not words,
    # A program of jq's can import files from any folder.
    "jq": _both(
        _without("fL", "--from-file", "--library-path"), _none_of(r"(?s).*\b(import|include)\b")
    ),
    "ls": lambda words: (
        _without("L", "--dereference")(words) or _without("R", "--recursive")(words)
    ),
    "printf": _none_of(r"-v"),
    # It can show the variables of every process: `ps axe`.
    "ps": _none_of(r"[A-Za-z]*[eE]|-[A-Za-z]*E|.*environ"),
    "rg": _without("L", "--pre", "--pre-glob", "--hostname-bin", "--follow"),
    "sed": lambda words: (
        len(words) >= 2
        and words[0] == "-n"
        and bool(re.fullmatch(r"(\d+|\$)(,(\d+|\$))?p", words[1]))
        and not any(word.startswith("-") for word in words[2:])
    ),
    "sort": _without(
        "oT", "--output", "--temporary-directory", "--compress-program", "--files0-from"
    ),
    "strings": _none_of("@"),
    "tree": _without("oRl", "--output", "--fromfile", "--fromtabfile"),
    "uniq": lambda words: len(_operands(words)) <= 1,
    "wc": _without("", "--files0-from"),
    "xxd": lambda words: (
        len(_operands(words)) <= 1 and not any("r" in w for w in words if w[:1] == "-")
    ),
}

# A pattern such as `find *` means them as what they are known for.
_LOOKERS = frozenset(_HARMLESS_WITH) - _names("command date env git hostname printf sed")
# The shell makes file names of a `*`: for these, none may become an option, since one could start a
# program or write a file; for others the names that there are count (links.py).
_STRICT = _names("file find git rg sort tree uniq xxd")

_ALWAYS_PRINT = _names(
    "date df du env expr file hostname id ls md5sum nproc ps pwd printenv sha1sum sha256sum "
    "sha512sum stat tree type uname uptime wc which whoami"
)
_PRINT_FILES = _names("cat head jq nl od sort tac tail uniq hexdump strings xxd")
_PRINT_MATCHES = _names("grep egrep fgrep rg")
_TEST_RUNNERS = _names("ctest jest mocha nox phpunit py.test pytest rspec tox vitest")
_TESTED_BY = _names("bun cargo deno dotnet go gradle make mix mvn npm pnpm swift yarn")
_GIT_PRINTS = _names("blame describe log rev-parse shortlog show status version")


def changes_nothing(line: str, *, windows: bool = False) -> bool:
    """Whether every program of a command line is known to leave things as they are."""
    try:
        stages = read_command(line, windows=windows)
    except NotSimpleError:
        return False
    return not windows and all(is_harmless(stage) for stage in stages)


def usually_prints(line: str, *, windows: bool = False) -> bool:
    """Whether success without any output would be strange."""
    try:
        stages = read_command(line, windows=windows)
    except NotSimpleError:
        return False
    if any(stage.joint == "||" or stage.silenced for stage in stages):
        return False
    # Each pipe prints by its last program; in a sequence, any of them is heard.
    ends = [
        position
        for position in range(len(stages))
        if position + 1 == len(stages) or stages[position + 1].joint != "|"
    ]
    return any(_stage_prints(stages, end) for end in ends)


def power_of(stage: Stage, written: Sequence[str]) -> str | None:
    """The word by which a program that is known for looking does more; None if there is none.

    Not for git, of which more is asked (policy.py).
    `written` are the words that whoever allowed the program wrote out: what stands there was meant.
    """
    stage = _unwrapped(stage)
    name = _known(stage)
    if name not in _LOOKERS:
        return None
    free = list(stage.words[1:])
    for word in written:
        free = [each for each in free if each.text != word]
    for each in free if name in _STRICT else ():
        if may_become_option(each):
            return each.text
    check, words = _HARMLESS_WITH[name], stage.texts[1:]
    if check(words) or not check([word for word in words if word in written]):
        return None
    return next((each.text for each in free if not check([each.text])), name)


def _known(stage: Stage) -> str:
    return (_name(stage) or "").lower().removesuffix(".exe")


def _unwrapped(stage: Stage) -> Stage:
    """The program that a wrapper starts (`nice sort`), if it is one that is known for looking."""
    if _known(stage) not in PLAIN_WRAPPERS:
        return stage
    for at in range(1, len(stage.words)):
        inner = replace(stage, words=stage.words[at:])
        if _known(inner) in _LOOKERS:
            return inner
    return stage


def may_become_option(word: Word) -> bool:
    """Whether the shell may make an option of it: a file may be named like one."""
    return word.globbed and word.text[:1] in "*?[-"


def program(line: str) -> str:
    """The name of the first program, for a person; the first word when the line is not simple."""
    try:
        first = read_command(line)[0].words[0].text
    except NotSimpleError:
        first = (line.split() or ["shell"])[0]
    return PurePosixPath(first).name or first


def _name(stage: Stage) -> str | None:
    """The program by its bare name; None for one that only sounds like a known one."""
    folder, slash, name = stage.words[0].text.rpartition("/")
    return name if not slash or folder in _SYSTEM_FOLDERS else None


def is_harmless(stage: Stage) -> bool:
    """Whether the program is known to leave things as they are with these words."""
    name, words = _name(stage), stage.texts[1:]
    if name in _HARMLESS:
        return True
    if name in _VERSIONED:
        return words in (("--version",), ("-V",), ("-v",), ("version",))
    check = _HARMLESS_WITH.get(name or "")
    hidden = name in _STRICT and any(map(may_become_option, stage.words[1:]))
    return check is not None and not hidden and check(words)


def _stage_prints(stages: Sequence[Stage], at: int) -> bool:
    stage = stages[at]
    name, words = _name(stage), stage.texts[1:]
    if name in _PRINT_MATCHES:
        return not any(re.match(r"-[a-zA-Z]*q|--quiet|--silent", word) for word in words)
    if name in _PRINT_FILES:
        if stage.joint == "|":
            before = _name(stages[at - 1])
            return before not in _PRINT_MATCHES and _stage_prints(stages, at - 1)
        return bool(_operands(words))
    return name in _ALWAYS_PRINT or _speaks(name, words)


def _speaks(name: str | None, words: Sequence[str]) -> bool:
    """The programs that print depending on their first words."""
    if name == "echo":
        return any(words) and words[0] != "-n"
    if name == "git":
        quiet = any(re.match(r"-s$|-q|--quiet|--short|--porcelain|-z$", word) for word in words)
        return bool(_GIT_PRINTS.intersection(words[:1])) and not quiet
    if name in ("python", "python3") and words[:1] == ("-m",):
        return words[1:2] in (("pytest",), ("unittest",))
    if name in _VERSIONED and words[:1] in (("--version",), ("-V",), ("version",)):
        return True
    if name in _TESTED_BY:
        return words[:1] == ("test",) or words[:2] == ("run", "test")
    return name in _TEST_RUNNERS
