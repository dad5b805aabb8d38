"""Decide by their words which calls may run without asking a person.

    Policy(folder, allow=("pytest *", "git log *", "write:docs/*", "fetch:https://docs.python.org/*"))

A pattern for a command is a program and its words. A `*` as its last word stands for any number of
operands and known options, a `*` elsewhere for one operand; a quoted one is itself. What no `*`
stands for must be written out, in a pattern or as the whole command (docs/decisions/069).

Rules: (1) pure, linear and bounded; (2) what is not allowed is denied, with the way to allow it; by
default only reading and searching inside the folder run; (3) the words that are judged are those
that the program gets: no shell reads them, so what needs one is refused; (4) a word that a `*`
stands for is a plain operand, which names no place outside and nothing in `.git`, or an option that
is listed as harmless, spelled exactly so; (5) nothing is written into `.git`, where settings make
git run programs, unless a pattern names it.
Not here: following links and reading a repository's settings (permission.py), prompting a person.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from jackline.batches.commands import (
    LONGEST_LINE,
    MOST_WORDS,
    PLAIN_ON_WINDOWS,
    NotSimpleError,
    read_pattern,
    read_words,
)
from jackline.batches.known_commands import (
    OTHER_WRAPPERS,
    PLAIN_WRAPPERS,
    WRITTEN_OUT,
    GitCall,
    Invocation,
    is_git,
    program_name,
)
from jackline.batches.tool import BatchCall, JsonObject
from jackline.foreign_repositories import GitGuard
from jackline.outside_names import LONGEST_PATH, is_long_path

_MOST_LAYERS = 5
LONGEST_URL = 8_192
"""Of an address; each of its layers is read whole."""
_LEFT_OUT = re.compile(r"[\t\r\n]")
"""Readers of addresses drop these."""


def has_dot_segments(url: str) -> bool:
    """Whether its path holds `.` or `..` as a segment, or a backslash, however they are written."""
    try:
        path = urlsplit(_LEFT_OUT.sub("", url)).path.encode("utf-8", "surrogatepass")
    except ValueError:
        return True  # no address at all
    for _ in range(_MOST_LAYERS):
        for segment in path.split(b"/"):
            plain = segment.replace(b"\xc0\xae", b".").partition(b";")[0].strip()
            if b"\\" in segment or plain in (b".", b".."):
                return True
        path, before = unquote_to_bytes(path), path
        if path == before:
            return False
    return True


_FREE = frozenset({"read", "search"})


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may run; a command as these words and no others, and under the guard, if any."""

    guard: GitGuard | None = None
    argv: tuple[str, ...] = ()
    inner: int = 0
    """The place of the program among the words, behind `nice`, `timeout 5` and such."""
    written: bool = False
    """The user wrote every word of it."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The call may not run: `why`, and `hint`, what would change that."""

    why: str
    hint: str

    @classmethod
    def outside(cls, path: str) -> Denied:
        """Of what lies elsewhere."""
        why = f"{_cut(path)!r} leads out of the project folder"
        return cls(why, "give paths inside the project folder")

    @classmethod
    def long_path(cls) -> Denied:
        """Of a path that no system takes."""
        return cls(f"the path has more than {LONGEST_PATH:,} bytes", "give a shorter one")

    @classmethod
    def into_git(cls, path: str) -> Denied:
        """Of what would be written into a git folder."""
        return cls(
            f"{_cut(path)!r} is inside of .git, where settings are that make git run programs",
            "name another place",
        )

    @classmethod
    def into_settings(cls, path: str) -> Denied:
        """Of what would be written into settings of agents or of Jackline."""
        return cls(
            f"{_cut(path)!r} holds settings by which agents or Jackline start programs",
            "name another place",
        )

    @classmethod
    def too_long(cls) -> Denied:
        """Of a command beyond the bounds."""
        return cls(
            f"the command is too long: {LONGEST_LINE:,} characters and {MOST_WORDS:,} words may be",
            "give several commands",
        )

    @classmethod
    def not_simple(cls, why: str) -> Denied:
        """Of a command that needs a shell."""
        return cls(
            f"the command holds {why}, and no shell reads it",
            "give `argv`, or each command as a call of its own: the words are passed on as they"
            " are; list file names in full",
        )


CallPermission: TypeAlias = Allowed | Denied


@dataclass(frozen=True, slots=True)
class Policy:
    """What may run without asking, inside which folder."""

    folder: Path
    allow: tuple[str, ...] = ()
    windows: bool = os.name == "nt"
    trusted: tuple[Path, ...] | None = None
    """The folders that the user chose, where a model chose `folder`; None: it is that folder."""

    @property
    def chosen_folders(self) -> tuple[Path, ...]:
        """The folders that the user chose; none of them may be at or above `folder`."""
        return (self.folder,) if self.trusted is None else self.trusted

    def judge(self, call: BatchCall) -> CallPermission:
        """Whether the call may run."""
        tool, arguments = call.tool.name, call.arguments
        if any(is_long_path(_text(arguments, name)) for name in ("path", "cwd")):
            return Denied.long_path()
        if tool == "shell":
            return self._judge_command(arguments)
        if tool == "fetch":
            return self._judge_named(tool, _text(arguments, "url"))
        path = _text(arguments, "path") or "."
        if self._leaves(path):
            return Denied.outside(path)
        if tool in _FREE:
            return Allowed()
        patterns = [item for item in self.allow if item.startswith(f"{tool}:")]
        if names_git(path) and not any(map(names_git, patterns)):
            return Denied.into_git(path)
        if names_settings(path) and not any(map(names_settings, patterns)):
            return Denied.into_settings(path)
        return self._judge_named(tool, os.path.normpath(path).replace("\\", "/"))

    def _judge_named(self, tool: str, what: str) -> CallPermission:
        patterns = [
            item.removeprefix(f"{tool}:") for item in self.allow if item.startswith(f"{tool}:")
        ]
        if tool == "fetch" and len(what) > LONGEST_URL:
            why = f"the address has more than {LONGEST_URL:,} characters"
            return Denied(why, "give a shorter one")
        if tool == "fetch" and has_dot_segments(what):
            return Denied(f"{_cut(what)!r} leads elsewhere than it says", "give it without dots")
        if what and any(fnmatchcase(what, pattern) for pattern in patterns):
            return Allowed()
        return Denied(
            f"`{tool}` is not allowed for {what or 'this'!r}",
            f"the user may add '{tool}:{what or '*'}' to what is allowed",
        )

    def _judge_command(self, arguments: JsonObject) -> CallPermission:
        place = _text(arguments, "cwd") or "."
        if self._leaves(place):
            return Denied.outside(place)
        if names_git(place):
            return Denied.into_git(place)
        argv, line = arguments.get("argv"), _text(arguments, "command")
        raw = [str(word) for word in argv] if isinstance(argv, list) else [line]
        if len(raw) > MOST_WORDS or sum(map(len, raw)) > LONGEST_LINE:
            return Denied.too_long()
        try:
            words = tuple(raw) if argv is not None else read_words(line, windows=self.windows)
        except NotSimpleError as error:
            return Denied.not_simple(error.why)
        if len(words) > MOST_WORDS:
            return Denied.too_long()
        if not words or not words[0].strip():
            return Denied("there is no command", "give `command` or `argv`")
        if any(sign == "\0" or "\ud800" <= sign <= "\udfff" for word in words for sign in word):
            return Denied.not_simple("characters that no program can be given")
        if not _PROGRAM.fullmatch(words[0]):
            return Denied("it names no program", "begin with the name of one")
        return self._judge_words(words)

    def _judge_words(self, words: tuple[str, ...]) -> CallPermission:
        denials, unusable = [], []
        for item in self.allow:
            if _OF_OTHER_TOOLS.match(item):
                continue
            try:
                judged = self._judge_by(item, words)
            except NotSimpleError as error:
                unusable.append(f" ({item!r} in batch.allow allows nothing: it holds {error.why})")
                continue
            if isinstance(judged, Allowed):
                return judged
            if judged is not None:
                denials.append(judged)
        if denials:
            return denials[0]
        hint = f"; reading and searching always are allowed{''.join(unusable[:1])}"
        return Denied(
            f"the command `{_cut(words[0])}` is not allowed with these words",
            f"{self._advice(words)}{hint}",
        )

    def _judge_by(self, item: str, words: tuple[str, ...]) -> CallPermission | None:
        """What one pattern says to these words; None where it does not speak of them."""
        pattern = _Pattern.of(item, windows=self.windows)
        free = pattern.free(words)
        if free is None:
            return None
        if pattern.first_free is None:
            try:
                return Allowed(argv=words, inner=pattern.inner(), written=True)
            except NotSimpleError:
                # Written out: whatever is before its program is the user's.
                return Allowed(argv=words, written=True)
        inner = pattern.inner()
        program = Invocation(words[inner:])
        written = words[inner + 1 : pattern.first_free]
        at_git = Invocation(words).git_at
        if at_git is not None and not (
            at_git == inner and GitCall.of(program.words).only_looks(len(written))
        ):
            why = "with these words git may do more than look, which no pattern with a `*` allows"
            return Denied(why, self._whole(words))
        for at in free:
            valued = at < len(pattern.words) and pattern.words[at][0][:1] == "-"
            judged = self._trouble_with(program, words[at], written, valued=valued)
            if judged is not None:
                return judged if isinstance(judged, Denied) else Denied(judged, self._whole(words))
        return Allowed(argv=words, inner=inner)

    def _trouble_with(
        self, program: Invocation, word: str, written: Sequence[str], *, valued: bool
    ) -> Denied | str | None:
        """Why no `*` matches this word; None where one does.

        `written` are the words before the first `*`; `valued`: the pattern has the name of this
        option, and a `*` for its value.
        """
        name = _cut(program.words[0])
        if word[:1] in ("-", "+"):
            if not (valued or is_git(program.words[0]) or program.knows_option(word)):
                return f"{_cut(word)!r} is none of the options that a `*` stands for with `{name}`"
            word = word.partition("=")[2]
        elif not program.takes_operand(written, word) or (word[:1] == "@" and name != "git"):
            return f"`{name}` may read {_cut(word)!r} as more than a name"
        if len(word) > _LONGEST_WORD or not word.isprintable():
            return "it holds control characters, or a word that is too long"
        if not program.is_known and not _TAME.fullmatch(word):
            return f"`{name}` may hand {_cut(word)!r} to a shell"
        if self._names_outside(word):
            return Denied.outside(word)
        if not program.is_harmless:
            if any(map(names_git, paths_in(word))):
                return Denied.into_git(word)
            if any(map(names_settings, paths_in(word))):
                return Denied.into_settings(word)
        return None

    def _names_outside(self, word: str) -> bool:
        """Whether a program may read the word, or a part of it, as a place outside."""
        if self.windows and (_DRIVE.search(word) or not PLAIN_ON_WINDOWS.fullmatch(word)):
            return True
        parts = paths_in(word.removeprefix(f"{self.folder.as_posix()}/"))
        return any(part[:1] in _ROOTS[self.windows] or _UPWARDS.search(part) for part in parts)

    def _advice(self, words: tuple[str, ...]) -> str:
        """What the user may allow so that this very command runs."""
        pattern = f"{words[0] if self.windows else shlex.quote(words[0])} *"
        try:
            judged = self._judge_by(pattern, words)
        except NotSimpleError:
            judged = None
        if isinstance(judged, Allowed):
            return f"the user may add {self._quoted(pattern)} to batch.allow"
        return self._whole(words) if judged is None else judged.hint

    def _whole(self, words: Sequence[str]) -> str:
        command = self._quoted(" ".join(words) if self.windows else shlex.join(words))
        if len(command) > _LONGEST_ADVICE:
            return "the user may write the whole command, word for word, into batch.allow"
        return f"the user may write the whole command into batch.allow: {command}"

    def _quoted(self, text: str) -> str:
        """A string for a TOML file, in which nothing is invisible."""
        written = json.dumps(text, ensure_ascii=False)
        return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08X}" for sign in written)

    def _leaves(self, raw: str) -> bool:
        """Whether a path, read as text alone, leads out of the folder."""
        if raw.startswith("~") or "\0" in raw:
            return True
        root = PurePosixPath(self.folder.as_posix())
        meant = PurePosixPath(os.path.normpath(root / raw.replace("\\", "/")))
        if self.windows:
            on_windows = PureWindowsPath(raw)
            if on_windows.drive or on_windows.root:
                return not on_windows.is_relative_to(PureWindowsPath(self.folder))
        return not meant.is_relative_to(PurePosixPath(os.path.normpath(root)))


_LONGEST_WORD = 4_096
_LONGEST_ADVICE = 500
_OF_OTHER_TOOLS = re.compile(r"(?:edit|fetch|read|search|write):")
_PROGRAM = re.compile(rf"(?!{_OF_OTHER_TOOLS.pattern})[\w./\\+][\w./\\:+@ ()-]*|\[")
_TAME = re.compile(r"[\w./:=,@+#^~-]*")
"""Characters that mean nothing to a shell, to which an unknown program may hand its words on."""
_SEPARATORS = re.compile(r"[\s=:,;@'\"`(){}\[\]<>|&]+")
_UPWARDS = re.compile(r"(?:^|[/\\])\s*\.\.\s*(?:$|[/\\])")
_ROOTS = {False: ("/", "~"), True: ("/", "~", "\\")}
_DRIVE = re.compile(r"(?:^|[=,;@\s])[A-Za-z]:")
_WRAPPERS_OWN = re.compile(r"-n|-?\d+(?:\.\d+)?[smhd]?|\w+=.*")
"""A priority, a time or a variable: what may stand between a wrapper and its program."""
_GIT_FOLDER = re.compile(r"(?:^|[/\\])(?:\.git|git~\d)[. ]*(?:$|[/\\:])", re.IGNORECASE)
"""As every file system may read it: some ignore case, some have short names."""
_INVISIBLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that the file system of macOS leaves out of names."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """An entry of `allow`: each word as the texts between its wildcards; one text without any."""

    words: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, item: str, *, windows: bool) -> _Pattern:
        """NotSimpleError for one that allows nothing, whatever it meant."""
        pattern = cls(read_pattern(item, windows=windows))
        if not pattern.words or pattern.first_free == 0:
            raise NotSimpleError("a `*` in the name of the program")
        if pattern.first_free is not None:
            pattern.inner()
        for first, *others in pattern.words:
            if others and first[:1] in ("-", "+") and "=" not in first:
                raise NotSimpleError("a `*` in the name of an option")
        return pattern

    @property
    def first_free(self) -> int | None:
        """The place of the first word with a wildcard; None for a command that is written out."""
        return next((at for at, pieces in enumerate(self.words) if len(pieces) > 1), None)

    def inner(self) -> int:
        """The place of the program that is really started: behind `nice`, `timeout 5` and such.

        NotSimpleError where no wildcard may follow it.
        """
        literal = [pieces[0] for pieces in self.words[: self.first_free]]
        at = 0
        while at < len(literal):
            name = program_name(literal[at])
            if name in OTHER_WRAPPERS and name != "find":
                raise NotSimpleError(f"a `*` behind `{name}`, which starts what its words say")
            if name in WRITTEN_OUT:
                raise NotSimpleError(f"a `*` behind `{name}`, which must be written out whole")
            if name not in PLAIN_WRAPPERS:
                if literal[at][:1] == "-":
                    break
                return at
            at += 1
            while at < len(literal) and _WRAPPERS_OWN.fullmatch(literal[at]):
                at += 1
        raise NotSimpleError("a `*` in the place of a program, or options before one")

    def free(self, words: Sequence[str]) -> list[int] | None:
        """The places of the words that wildcards stand for; None where the words do not fit."""
        open_ended = self.words[-1] == ("", "")
        wanted = self.words[:-1] if open_ended else self.words
        if len(words) < len(wanted) or (len(words) > len(wanted) and not open_ended):
            return None
        if not all(map(self._fits, words, wanted)):
            return None
        free = [at for at, pieces in enumerate(wanted) if len(pieces) > 1]
        return [*free, *range(len(wanted), len(words))]

    def _fits(self, word: str, pieces: tuple[str, ...]) -> bool:
        if len(pieces) == 1:
            return word == pieces[0]
        first, *middle, last = pieces
        if not word.startswith(first) or not word.endswith(last):
            return False
        at, end = len(first), len(word) - len(last)
        for piece in middle:
            found = word.find(piece, at, end)
            if found < 0:
                return False
            at = found + len(piece)
        return at <= end


def paths_in(word: str) -> list[str]:
    """The texts in a word that a program may take for a path: itself, and its parts."""
    glued = [word[2:]] if word[:1] == "-" else []  # the value of a short option: `-fdocs/x`
    return [part for part in dict.fromkeys((word, *glued, *_SEPARATORS.split(word))) if part]


CLIENT_SETTINGS = (".claude", ".mcp.json", ".codex", ".agents")
"""Of Claude Code and of Codex: settings with hooks, servers, agents, commands, skills, plugins."""
SETTINGS = frozenset((*CLIENT_SETTINGS, "jackline.toml"))


def names_settings(path: str) -> bool:
    """Whether a path, read as text alone, leads to settings that agents or Jackline follow."""
    parts = re.split(r"[/\\]", _INVISIBLE.sub("", path))
    # Some file systems ignore case, or what comes after a name.
    return any(part.lower().partition(":")[0].rstrip(". ") in SETTINGS for part in parts)


def names_git(path: str) -> bool:
    """Whether a path, read as text alone, leads into a repository's own folder."""
    text = _INVISIBLE.sub("", path)
    return bool(_GIT_FOLDER.search(text.partition(":")[2] or text) or _GIT_FOLDER.search(text))


def _text(arguments: JsonObject, name: str) -> str:
    value = arguments.get(name)
    return value if isinstance(value, str) else ""


def _cut(word: str) -> str:
    return word if len(word) <= 100 else f"{word[:99]}…"
