"""Decide which calls may run for somebody who was not asked.

    Policy(folder, allow=("pytest *", "git log *", "write:docs/*", "fetch:https://docs.python.org/*"))

A pattern for a command is matched word by word; a `*` at its end stands for any further words, but
for none by which a program that is known for looking writes a file or starts another program:
`sort *` allows no `--output`, `find *` no `-exec`. Such words have to be written out. By a pattern
with a `*` git only looks; what it is to change has to be allowed as a whole command, word for word.

Laws: (1) pure: nothing is touched to judge; (2) what is not allowed is denied, and told how it
could be; by default only reading and searching inside the folder; (3) a command is judged by the
words that its program gets; a line that only a shell can read, with substitutions, chains,
redirections or variables, is never allowed; (4) no word of an allowed command may name a place
outside, and a pattern that names no program allows none; (5) nothing is written into `.git`, where
settings are that make git run anything, unless a pattern names it.
Not here: following links and reading a repository's settings (permission.py does, when a tool
runs), asking a person.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TypeAlias

from jackline.batches.commands import NotSimpleError, Stage, Word, read_command
from jackline.batches.git_commands import git_at, only_looks
from jackline.batches.results import BatchCall
from jackline.batches.tool import JsonObject
from jackline.batches.usual_commands import is_harmless, may_become_option, power_of
from jackline.foreign_repositories import Guard

_FREE = frozenset({"read", "search"})


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may run; if it starts git, with the variables of this guard."""

    guard: Guard | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """The call may not run: `why`, and `next`, what would change that."""

    why: str
    next: str


Judgement: TypeAlias = Allowed | Denied


@dataclass(frozen=True, slots=True)
class Policy:
    """What may run without asking, inside which folder."""

    folder: Path
    allow: tuple[str, ...] = ()
    windows: bool = os.name == "nt"

    def judge(self, call: BatchCall) -> Judgement:
        """Whether the call may run."""
        tool, arguments = call.tool.name, call.arguments
        if tool == "shell":
            return self._judge_command(arguments)
        if tool == "fetch":
            return self._judge_named(tool, _text(arguments, "url"))
        path = _text(arguments, "path") or "."
        if self._leaves(path):
            return _outside(path)
        if tool in _FREE:
            return Allowed()
        named = any(names_git(item) for item in self.allow if item.startswith(f"{tool}:"))
        if names_git(path) and not named:
            return into_git(path)
        return self._judge_named(tool, _normal(path))

    def _judge_named(self, tool: str, what: str) -> Judgement:
        patterns = [
            item.removeprefix(f"{tool}:") for item in self.allow if item.startswith(f"{tool}:")
        ]
        if what and any(fnmatchcase(what, pattern) for pattern in patterns):
            return Allowed()
        return Denied(
            f"`{tool}` is not allowed for {what or 'this'!r}",
            f"the user may add '{tool}:{what or '*'}' to what is allowed",
        )

    def _judge_command(self, arguments: JsonObject) -> Judgement:
        place = _text(arguments, "cwd") or "."
        if self._leaves(place):
            return _outside(place)
        if names_git(place):
            return into_git(place)
        argv = arguments.get("argv")
        if isinstance(argv, list):
            words = tuple(Word(str(word)) for word in argv)
            return self._judge_stage(Stage("", words)) if words else _nothing()
        try:
            stages = read_command(_text(arguments, "command"), windows=self.windows)
        except NotSimpleError as error:
            return _not_simple(error.why)
        if any(stage.joint not in ("", "|") for stage in stages):
            return _not_simple("more than one command")
        denials = (self._judge_stage(stage) for stage in stages)
        return next((said for said in denials if isinstance(said, Denied)), Allowed())

    def _judge_stage(self, stage: Stage) -> Judgement:
        for word in stage.words[1:]:
            if word.homed or any(self._leaves(part) for part in paths_in(word)):
                return _outside(word.text)
        patterns = [self._words(item) for item in self.allow if not _PREFIXED.match(item)]
        fitting = [pattern for pattern in patterns if _fits(stage.texts, pattern)]
        judged = [self._judge_free_words(stage, pattern) for pattern in fitting]
        if any(isinstance(said, Allowed) for said in judged):
            return Allowed()
        if judged:
            return judged[0]
        first = stage.texts[0]
        return Denied(
            f"the command `{first}` is not allowed with these words",
            f"the user may add '{first} *' to what is allowed; reading and searching always are",
        )

    def _words(self, pattern: str) -> list[str]:
        try:
            return pattern.split() if self.windows else shlex.split(pattern)
        except ValueError:
            return pattern.split()  # a quote that is none: nobody means a word with spaces

    def _judge_free_words(self, stage: Stage, pattern: list[str]) -> Judgement:
        """Whether the words that the pattern does not write out are such as it can have meant."""
        if list(stage.texts) == pattern and not any(map(_WILD.search, pattern)):
            return Allowed()
        if (at := git_at(stage)) is not None and not _may_have_meant(stage, pattern, at):
            return self._whole_git(stage)
        written = [word for word in pattern if not _WILD.search(word)]
        power = power_of(stage, written[1:])
        if power is not None:
            return Denied(
                f"{power!r} would let `{stage.texts[0]}` do more than look",
                f"the user may write it out: '{' '.join([*written, power])} *'",
            )
        free = [word for word in stage.words[1:] if word.text not in written]
        if not is_harmless(stage):
            for word in free:
                if any(names_git(part) for part in paths_in(word)):
                    return into_git(word.text)
        return Allowed()

    def _whole_git(self, stage: Stage) -> Denied:
        why = "with these words git may do more than look, which no pattern with a `*` allows"
        if any(map(_WILD.search, stage.texts)):
            return Denied(
                why,
                "give the command without `*`, `?` and `[`: then the user may write it, as a whole,"
                " into batch.allow",
            )
        command = " ".join(stage.texts) if self.windows else shlex.join(stage.texts)
        quoted = json.dumps(command, ensure_ascii=False)
        return Denied(why, f"the user may write the whole command into batch.allow: {quoted}")

    def _leaves(self, given: str) -> bool:
        """Whether a path, read as text alone, leads out of the folder."""
        if given.startswith("~") or "\0" in given:
            return True
        root = PurePosixPath(self.folder.as_posix())
        meant = PurePosixPath(os.path.normpath(root / given.replace("\\", "/")))
        if self.windows:
            on_windows = PureWindowsPath(given)
            if on_windows.drive or on_windows.root:
                return not on_windows.is_relative_to(PureWindowsPath(self.folder))
        return not meant.is_relative_to(PurePosixPath(os.path.normpath(root)))


_WILD = re.compile(r"[*?\[]")
_GIT_FOLDER = re.compile(r"(?:^|[/\\])(?:\.git|git~\d)[. ]*(?:$|[/\\:])", re.IGNORECASE)
"""As every file system may read it: some ignore case, some have short names."""
_INVISIBLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that the file system of macOS leaves out of names."""
_PREFIXED = re.compile(r"[a-z_]+:\S")
_HIDDEN_PARENT = re.compile(r"(?:^|/)\.[^/]*[*?\[]")
"""A pattern that begins with a dot may stand for `..` in some shells."""


_LONGEST_CLUSTER = 1024
_NO_OPTION = frozenset("/\\.~")
"""No program has an option of this letter: where one stands, a value has begun."""


def paths_in(word: Word) -> list[str]:
    """The texts in a word that a program may take for a path: itself, and an option's value."""
    if word.globbed and _HIDDEN_PARENT.search(word.text):
        return [".."]
    parts = [word.text, *re.split(r"[=:,;@]", word.text)]
    if word.text.startswith("--"):
        parts.append(word.text[2:])
    elif word.text.startswith("-"):
        if len(word.text) > _LONGEST_CLUSTER:
            return [".."]  # any of its thousands of ends may be a path
        parts += [end for part in parts for end in _values_in(part)]
    return [part for part in parts if part]


def _values_in(cluster: str) -> Iterator[str]:
    """What may be the value of a short option: `-f../x`; `-xzf../x`, behind any others."""
    for at in range(2, len(cluster)):
        yield cluster[at:]
        if cluster[at] in _NO_OPTION:
            return


def _may_have_meant(stage: Stage, pattern: list[str], at: int) -> bool:
    """Whether this git only looks, where and how the pattern says."""
    if stage.texts[at].replace("\\", "/").rpartition("/")[2].lower() not in ("git", "git.exe"):
        return False  # `git-upload-pack` and its like
    literal = next((n for n, word in enumerate(pattern) if _WILD.search(word)), len(pattern))
    if any(map(may_become_option, stage.words[at + 1 :])):
        return False
    return only_looks(stage.texts[at + 1 :], max(0, literal - at - 1))


def _fits(words: tuple[str, ...], pattern: list[str]) -> bool:
    open_ended = pattern[-1:] == ["*"]
    wanted = pattern[:-1] if open_ended else pattern
    if not wanted or len(words) < len(wanted) or (len(words) > len(wanted) and not open_ended):
        return False
    return all(fnmatchcase(word, want) for word, want in zip(words, wanted, strict=False))


def names_git(path: str) -> bool:
    """Whether a path, read as text alone, leads into a repository's own folder."""
    text = _INVISIBLE.sub("", path)
    return bool(_GIT_FOLDER.search(text.partition(":")[2] or text) or _GIT_FOLDER.search(text))


def _normal(path: str) -> str:
    return os.path.normpath(path).replace("\\", "/")


def _text(arguments: JsonObject, name: str) -> str:
    value = arguments.get(name)
    return value if isinstance(value, str) else ""


def _nothing() -> Denied:
    return Denied("there is no command", "give `command` or `argv`")


def _outside(path: str) -> Denied:
    return Denied(
        f"{path!r} leads out of the project folder", "give paths inside the project folder"
    )


def into_git(path: str) -> Denied:
    """The denial of what would be written there."""
    return Denied(
        f"{path!r} is inside of .git, where settings are that make git run programs",
        "name another place",
    )


def _not_simple(why: str) -> Denied:
    return Denied(
        f"the command line holds {why}, which cannot be judged safely",
        "give each command as a call of its own, with plain words; the calls run side by side",
    )
