"""Read what a git command would do: whether it only looks, by which word it does more, and where.

Laws: (1) pure; (2) a verb or option that is not known for looking may do anything; (3) a git behind
another program (`env git log`) is a git like any other, and one whose words or place only that
program knows is not judged, which whoever asks is told.
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
    "config": ("--get", "--get-all", "--get-regexp", "--list", "-l"),
    "reflog": ("show",),
    "stash": ("list", "show"),
    "worktree": ("list",),
}
# Options by which git writes a file, starts a program or enters a submodule. It takes every
# beginning of a long option that is clear, and several short ones in one word; behind -S, -G and -L
# stands a text.
_POWERS = (
    *("--output", "--ext-diff", "--textconv", "--filters", "--open-files-in-pager", "--exec"),
    *("--upload-pack", "--receive-pack", "--config", "--template", "--show-signature", "--help"),
    *("--ignore-submodules", "--submodule", "--recurse-submodules", "--extcmd", "--strategy"),
)
_HARMLESS_AFTER_ALL = ("--ignore-submodules=all", "--submodule=short", "--no-recurse-submodules")
_SHORT_POWERS = re.compile(r"-(?![SGL])[A-Za-z0-9]*O")
# What else gives power to single verbs: for `grep`, -G and -L are flags like others.
_VERB_POWERS = {
    "bisect": re.compile(r"run$|visualize$|view$"),
    "clone": re.compile(r"-[A-Za-z]*[cu]"),
    "difftool": re.compile(r"-[A-Za-z]*[xt]|--tool"),
    "grep": re.compile(r"-[A-Za-z0-9]*O"),
    "rebase": re.compile(r"-x"),
    "submodule": re.compile(r"foreach$"),
}
_LISTING = ("-a", "-r", "-v", "-vv", "--list", "-l", "--all")
_HARMLESS_LEADING = ("--no-pager", "-P", "--version", "--help")
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
    rest = list(words)
    while rest[:1] in (["-C"], ["--git-dir"], ["--work-tree"]):
        rest = rest[2:]
    if rest[:1] in (["--no-pager"], ["-P"]):
        rest = rest[1:]
    if not rest or any(map(_gives_power, rest)):
        return False
    power = _VERB_POWERS.get(rest[0])
    if power is not None and any(map(power.match, rest)):
        return False
    if rest[0] in ("branch", "tag", "remote"):
        return all(word in (*_LISTING, "--show-current") for word in rest[1:])
    if rest[0] in _LOOKING_WITH:
        return rest[1:2] != [] and rest[1] in _LOOKING_WITH[rest[0]]
    return rest[0] in _LOOKING


def power_of_git(words: Sequence[str], free: Sequence[str]) -> str | None:
    """The first of the `free` words by which git does more than look; None if there is none."""
    more = [power for verb, power in _VERB_POWERS.items() if verb in words]
    for word in free:
        if _gives_power(word) or any(power.match(word) for power in more):
            return word
    # With `git *` even the verb is free: only those that look are meant, and only here.
    first = words[0] if words else ""
    if first in free and first.startswith("-") and first not in _HARMLESS_LEADING:
        return first
    verb = next((word for word in words if not word.startswith("-")), "")
    return verb or "git" if verb in free and not looks(words) else None


def git_calls(stages: Sequence[Stage]) -> list[GitCall]:
    """Every git that these stages start; UnjudgedGitError when one cannot be judged."""
    calls = []
    for stage in stages:
        words = stage.texts
        wrapper = _program(words[0])
        at = next((number for number, word in enumerate(words) if _is_git(word)), None)
        if at == 0:
            calls.append(_call(words))
        elif at is None or wrapper not in PLAIN_WRAPPERS | _OTHER_WRAPPERS:
            continue
        elif wrapper in _OTHER_WRAPPERS or (
            wrapper == "env" and any(map(_LEADS_ELSEWHERE.match, words[1:at]))
        ):
            raise UnjudgedGitError(wrapper)
        else:
            calls.append(_call(words[at:]))
    return calls


def _call(words: Sequence[str]) -> GitCall:
    rest = list(words[1:])
    if _program(words[0]) != "git":  # `git-upload-pack` and its like
        return GitCall((), (), "", looking=False, names_hooks=False)
    folders, leading, names_hooks, plain = [], [], False, []
    while rest and rest[0].startswith("-"):
        name, equals, value = rest[0].partition("=")
        taken = [rest.pop(0)]
        if name in _WITH_VALUE and not equals and rest:
            taken.append(rest.pop(0))
            value = taken[1]
        if name == "-C":
            folders.append(value)
        elif name in _NAMES_REPOSITORY:
            leading += taken
        elif name == "-c":
            names_hooks = names_hooks or value.lower().startswith("core.hookspath=")
        elif name not in ("--no-pager", "-P"):
            plain += taken
    looking = looks([*plain, *rest]) if rest else True  # without a verb it tells of itself
    verb = rest[0] if rest else ""
    return GitCall(tuple(folders), tuple(leading), verb, looking, names_hooks)


def _gives_power(word: str) -> bool:
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
