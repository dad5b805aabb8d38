"""Parse a simple command line: programs with plain words, joined by pipes and sequences.

Rules: (1) pure; (2) what a shell might read in another way is refused, never guessed:
substitutions, variables, groups, background, output into files; (3) a line that is parsed means
exactly these words to every POSIX shell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_OPERATOR = re.compile(r"\|\||&&|[|;]")
_TO_NOWHERE = re.compile(r"(?P<from>[12]?|&)>(?:>\s*/dev/null|\s*/dev/null|&[12])(?=\s|$|[|;&])")
_PLAIN = re.compile(r"[^\s'\"\\|&;<>()$`{}#!\n]+")
_IN_DOUBLE = re.compile(r'[^"\\$`]+')
PLAIN_ON_WINDOWS = re.compile(r"[\w./:\\=,@+ -]*")

_REFUSED = {
    "$": "a variable or substitution (`$`)",
    "`": "a substitution (backticks)",
    "(": "a group in parentheses",
    ")": "a group in parentheses",
    "{": "braces",
    "}": "braces",
    "<": "input from a file (`<`)",
    ">": "output into a file (`>`)",
    "&": "a command in the background (`&`)",
    "\n": "more than one line",
    "\r": "more than one line",
    "#": "a comment (`#`)",
    "!": "a negation (`!`)",
}


LONGEST_LINE = 32_768
MOST_WORDS = 1_000
_STAR = "\0"
"""Stands for an unquoted `*` in the shape of a word; no word can hold it."""


class NotSimpleError(ValueError):
    """The line holds something that only a shell can read; `why` names it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class CommandWord:
    """One word as the program gets it, if nothing in it is expanded."""

    text: str
    globbed: bool = False
    """It holds an unquoted `*`, `?` or `[`: the program gets file names instead."""
    homed: bool = False
    """It begins with an unquoted `~`."""
    pieces: tuple[str, ...] = ()
    """In a pattern: the texts between unquoted `*`."""


@dataclass(frozen=True, slots=True)
class CommandStage:
    """One program with its words; `joint` is what is before it: "", "|", "&&", "||", ";"."""

    joint: str
    words: tuple[CommandWord, ...]
    silenced: bool = False
    """Its output goes to /dev/null."""
    redirected: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The words as plain strings, the program first."""
        return tuple(word.text for word in self.words)


def read_command(line: str, *, windows: bool = False) -> tuple[CommandStage, ...]:
    """The stages of a command line; NotSimpleError when it is not a simple one."""
    if len(line) > LONGEST_LINE:
        raise NotSimpleError(f"more than {LONGEST_LINE:,} characters, which is too long")
    if not windows:
        return _Reading(line).stages()
    # cmd.exe has its own quoting, and programs split their words themselves: plain words only.
    if not line.strip() or not PLAIN_ON_WINDOWS.fullmatch(line):
        raise NotSimpleError("characters that Windows may read in its own way")
    return (CommandStage("", tuple(CommandWord(text) for text in line.split())),)


def read_words(line: str, *, windows: bool = False) -> tuple[str, ...]:
    """The words of one program that needs no shell; NotSimpleError when it would need one."""
    stages = read_command(line, windows=windows)
    if len(stages) > 1:
        raise NotSimpleError("more than one command")
    words = stages[0].words
    if stages[0].redirected:
        raise NotSimpleError("a redirection (`>`)")
    if any(word.globbed or word.homed for word in words):
        raise NotSimpleError("a pattern of file names (`*`, `?`, `[`) or a `~` without quotes")
    return stages[0].texts


def read_pattern(pattern: str, *, windows: bool = False) -> tuple[tuple[str, ...], ...]:
    """The words of a pattern, each as the texts between its unquoted `*`; NotSimpleError as above.

    A word without any is one text.
    """
    if windows:
        return tuple(tuple(word.split("*")) for word in pattern.split())
    stages = read_command(pattern)
    if len(stages) > 1 or stages[0].redirected:
        raise NotSimpleError("what only a shell can do")
    return tuple(word.pieces for word in stages[0].words)


class _Reading:
    """One pass over a line."""

    def __init__(self, line: str) -> None:
        self._line = line.strip(" \t")
        if _STAR in self._line:
            raise NotSimpleError("a NUL character")
        self._at = 0
        self._stages: list[CommandStage] = []
        self._words: list[CommandWord] = []
        self._joint = ""
        self._silenced = self._redirected = False

    def stages(self) -> tuple[CommandStage, ...]:
        while self._at < len(self._line):
            rest = self._line[self._at]
            if rest in " \t":
                self._at += 1
            elif nowhere := _TO_NOWHERE.match(self._line, self._at):
                self._at = nowhere.end()
                self._redirected = True
                if nowhere["from"] != "2" and "/dev/null" in nowhere[0]:
                    self._silenced = True
            elif operator := _OPERATOR.match(self._line, self._at):
                self._at = operator.end()
                self._finish_stage(operator[0])
            else:
                self._words.append(self._word())
        self._finish_stage("")
        return tuple(self._stages)

    def _finish_stage(self, joint: str) -> None:
        if not self._words:
            if joint == "" and self._joint == ";" and self._stages:
                return  # a sequence may end with a semicolon
            raise NotSimpleError("a place where a command is missing")
        if "=" in self._words[0].text.partition("/")[0] or self._words[0].globbed:
            raise NotSimpleError("a variable set before the command, or no plain program name")
        stage = CommandStage(self._joint, tuple(self._words), self._silenced, self._redirected)
        self._stages.append(stage)
        self._words, self._joint = [], joint
        self._silenced = self._redirected = False

    def _word(self) -> CommandWord:
        start = self._at
        parts: list[str] = []
        globbed = False
        while self._at < len(self._line) and self._line[self._at] not in " \t|;&":
            rest = self._line[self._at]
            if rest == "'":
                end = self._line.find("'", self._at + 1)
                if end < 0:
                    raise NotSimpleError("a quotation mark that is not closed")
                parts.append(self._line[self._at + 1 : end])
                self._at = end + 1
            elif rest == '"':
                parts.append(self._double_quoted())
            elif rest == "\\":
                parts.append(self._escaped())
            elif plain := self._plain(at_start=self._at == start):
                globbed = globbed or any(sign in plain for sign in "*?[")
                parts.append(plain.replace("*", _STAR))
        if self._at == start:
            raise NotSimpleError(_REFUSED["&"])
        shape = "".join(parts)
        text = shape.replace(_STAR, "*")
        # A lone bracket is the name of a program.
        globbed = globbed and text != "["
        return CommandWord(text, globbed, self._line[start] == "~", tuple(shape.split(_STAR)))

    def _plain(self, *, at_start: bool) -> str:
        if match := _PLAIN.match(self._line, self._at):
            self._at = match.end()
            if re.search(r"[12]$", match[0]) and self._line[self._at : self._at + 1] == ">":
                raise NotSimpleError(_REFUSED[">"])
            return match[0]
        sign = self._line[self._at]
        if sign in "#!" and not at_start:
            self._at += 1
            return sign
        raise NotSimpleError(_REFUSED.get(sign, f"the character {sign!r}"))

    def _double_quoted(self) -> str:
        parts: list[str] = []
        self._at += 1
        while self._at < len(self._line):
            sign = self._line[self._at]
            if sign == '"':
                self._at += 1
                return "".join(parts)
            if sign == "\\":
                # Inside, the backslash is kept unless it hides one of these.
                hidden = self._escaped()
                parts.append(hidden if hidden in '"\\$`' else f"\\{hidden}")
            elif match := _IN_DOUBLE.match(self._line, self._at):
                self._at = match.end()
                parts.append(match[0])
            else:
                raise NotSimpleError(_REFUSED[sign])
        raise NotSimpleError("a quotation mark that is not closed")

    def _escaped(self) -> str:
        hidden = self._line[self._at + 1 : self._at + 2]
        if hidden in ("", "\n"):
            raise NotSimpleError("a backslash at the end of a line")
        self._at += 2
        return hidden
