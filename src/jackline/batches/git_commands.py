"""Read what a git command would do: whether it only looks, by which word it does more, and where.

Laws: (1) pure; (2) a verb or option that is not known for looking may do anything: git has too many
ways to start a program for a list of them; (3) a git behind another program (`env git log`) is a
git like any other, and one whose words or place only that program knows is not judged, which
whoever asks is told.
Not here: other programs (usual_commands.py), the repository's own settings (foreign_repositories/).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from jackline.batches.commands import Stage

_LOOKING = frozenset(
    """
    blame cat-file check-attr check-ignore cherry count-objects describe diff diff-tree for-each-ref
    grep log ls-files ls-tree merge-base name-rev rev-list rev-parse shortlog show show-ref status
    version whatchanged
    """.split()  # noqa: SIM905 -- a table to be read
)
# Verbs that look if this comes first behind them.
_LOOKING_WITH = {
    "reflog": ("show",),
    "stash": ("list", "show"),
    "worktree": ("list",),
}
# Options by which a verb that looks writes a file, starts a program or enters a submodule. Every
# beginning of a long option that is clear will do, and several short ones in one word; behind -S,
# -G and -L stands a text.
_POWERS = (
    *("--output", "--ext-diff", "--textconv", "--filters", "--open-files-in-pager", "--help"),
    *("--show-signature", "--ignore-submodules", "--submodule", "--recurse-submodules"),
)
_HARMLESS_AFTER_ALL = ("--ignore-submodules=all", "--submodule=short", "--no-recurse-submodules")
_SHORT_POWERS = re.compile(r"-(?![SGL])[A-Za-z0-9]*O")
_SHORT_POWERS_OF_GREP = re.compile(r"-[A-Za-z0-9]*O")
"""For `grep`, -G and -L are flags like others."""
_CHECKS_SIGNATURE = re.compile(r"%[-+ ]?G|%\(\*?signature")
"""In a format: git starts gpg."""
_LISTING = ("-a", "-r", "-v", "-vv", "--list", "-l", "--all")
_HARMLESS_LEADING = ("--no-pager", "-P", "--version")
_PLAIN_LEADING = ("--no-pager", "-P", "-C", "--git-dir", "--work-tree")
_WITH_VALUE = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env")
_NAMES_REPOSITORY = ("--git-dir", "--work-tree", "--bare")

# Programs that start the one behind them and change neither its words nor its folder.
PLAIN_WRAPPERS = frozenset(
    ("chrt", "command", "env", "exec", "ionice", "nice", "nohup", "setsid", "stdbuf", "taskset")
) | {"time", "timeout"}
_OTHER_WRAPPERS = frozenset(
    ("chroot", "doas", "find", "parallel", "su", "sudo", "unshare", "watch", "xargs")
)
_LEADS_ELSEWHERE = re.compile(r"-|(?:GIT_\w*|HOME|XDG_\w*|PATH|LD_\w*|DYLD_\w*)=")


class UnjudgedGitError(Exception):
    """A git is started by another program in a way that cannot be judged; `by` names it."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


@dataclass(frozen=True, slots=True)
class GitCall:
    """One git of a command."""

    folders: tuple[str, ...]
    """What its `-C` say, each from the one before."""
    leading: tuple[str, ...]
    """`--git-dir`, `--work-tree` and `--bare`, as given."""
    verb: str
    looking: bool
    names_hooks: bool
    """`-c core.hooksPath=…` says which hooks may run."""


def looks(words: Sequence[str]) -> bool:
    """Whether git with these words is known to leave things as they are."""
    leading, rest = _split(words)
    plain = all(word in _PLAIN_LEADING or not word.startswith("-") for word in leading)
    return plain and rest != [] and _verb_looks(rest)


def only_looks(words: Sequence[str], written: int) -> bool:
    """Whether git only looks, given that the user has written out the first words, so many.

    Where it looks, and with which settings, is for the user to write.
    """
    leading, rest = _split(words)
    free = leading[written:]
    return all(word in _HARMLESS_LEADING for word in free) and (not rest or _verb_looks(rest))


def git_at(stage: Stage) -> int | None:
    """The place among the words where a git stands that is started; None without one."""
    words = stage.texts
    at = next((number for number, word in enumerate(words) if _is_git(word)), None)
    return at if at == 0 or _program(words[0]) in PLAIN_WRAPPERS | _OTHER_WRAPPERS else None


def git_calls(stages: Sequence[Stage]) -> list[GitCall]:
    """Every git that these stages start; UnjudgedGitError when one cannot be judged."""
    calls = []
    for stage in stages:
        words = stage.texts
        wrapper, at = _program(words[0]), git_at(stage)
        if at is None:
            continue
        if wrapper in _OTHER_WRAPPERS or (
            wrapper == "env" and any(map(_LEADS_ELSEWHERE.match, words[1:at]))
        ):
            raise UnjudgedGitError(wrapper)
        calls.append(_call(words[at:]))
    return calls


def _call(words: Sequence[str]) -> GitCall:
    if _program(words[0]) != "git":  # `git-upload-pack` and its like
        return GitCall((), (), "", looking=False, names_hooks=False)
    rest, folders, leading, names_hooks = list(words[1:]), [], [], False
    harmless = True
    while rest and rest[0].startswith("-"):
        taken, value = _taken(rest)
        name = taken[0].partition("=")[0]
        if name == "-C":
            folders.append(value)
        elif name in _NAMES_REPOSITORY:
            leading += taken
        elif name == "-c":
            names_hooks = names_hooks or value.lower().startswith("core.hookspath=")
        elif name not in _HARMLESS_LEADING:
            harmless = False
    looking = harmless and (not rest or _verb_looks(rest))  # without a verb it tells of itself
    verb = rest[0] if rest else ""
    return GitCall(tuple(folders), tuple(leading), verb, looking, names_hooks)


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands before the verb, and the verb with what follows."""
    rest, leading = list(words), []
    while rest and rest[0].startswith("-"):
        leading += _taken(rest)[0]
    return leading, rest


def _taken(rest: list[str]) -> tuple[list[str], str]:
    """The first option, taken out of `rest` with its value, and that value."""
    name, equals, value = rest[0].partition("=")
    taken = [rest.pop(0)]
    if name in _WITH_VALUE and not equals and rest:
        taken.append(rest.pop(0))
        value = taken[1]
    return taken, value


def _verb_looks(words: Sequence[str]) -> bool:
    verb, rest = words[0], words[1:]
    if any(map(_gives_power, rest)):
        return False
    if verb == "grep" and any(map(_SHORT_POWERS_OF_GREP.match, rest)):
        return False
    if verb in ("branch", "tag", "remote"):
        return all(word in (*_LISTING, "--show-current") for word in rest)
    if verb in _LOOKING_WITH:
        return bool(rest) and rest[0] in _LOOKING_WITH[verb]
    return verb in _LOOKING


def _gives_power(word: str) -> bool:
    if _CHECKS_SIGNATURE.search(word):
        return True
    if not word.startswith("--"):
        return bool(_SHORT_POWERS.match(word))
    if word in _HARMLESS_AFTER_ALL:
        return False
    name = word.partition("=")[0]
    return len(name) > 2 and any(power.startswith(name) for power in _POWERS)


def _program(word: str) -> str:
    return PurePosixPath(word.replace("\\", "/")).name.lower().removesuffix(".exe")


def _is_git(word: str) -> bool:
    name = _program(word)
    return name == "git" or name.startswith("git-")
