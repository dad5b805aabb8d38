"""Read what a git command would do: whether it only looks, and where.

Rules: (1) pure; (2) a verb or option that is not on a list of those that look, spelled exactly so,
may do anything: git has too many ways to start a program for a list of them; (3) a git behind
another program (`env git log`) is a git like any other, and one whose words or place only that
program knows is not judged, which whoever asks is told.
Not here: other programs (usual_commands.py), the repository's own settings (foreign_repositories/).
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

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
# Harmless with every verb above, whatever word follows; `#` stands for a number, and behind a `=`
# stands any value.
_OPTIONS = frozenset(
    """
    -- -# -n -n# -p -u -U# -w -b -i -l -v -s -z -c -m -r -t -e -a -h -A -B -C -E -F -G -H -I -L -M
    -P -S -A# -B# -C# -M# --abbrev --abbrev= --abbrev-commit --abbrev-ref --after --after= --all
    --all-match --always --ancestry-path --and --author --author= --before --before= --branch
    --branches --break-rewrites --cached --cc --cherry --cherry-mark --cherry-pick --color=never
    --column --committer --committer= --contains --count --date --date= --date-order --decorate
    --decorate=short --deleted --diff-filter= --dirty --email --exact-match --exclude-standard
    --exclude= --exit-code --extended-regexp --files-with-matches --find-copies --find-renames
    --first-parent --fixed-strings --follow --format= --full-history --full-name --git-dir --graph
    --grep --grep= --histogram --ignore-all-space --ignore-blank-lines --ignore-case
    --ignore-space-change --ignore-submodules=all --ignored --inter-hunk-context= --invert-grep
    --is-ancestor --is-bare-repository --is-inside-work-tree --left-only --left-right
    --line-number --line-porcelain --list --local --log-size --long --max-count= --max-depth
    --max-parents= --merge-base --merged --merges --min-parents= --minimal --modified --name-only
    --name-status --no-abbrev --no-color --no-decorate --no-ext-diff
    --no-merged --no-merges --no-notes --no-patch --no-recurse-submodules --no-renames
    --no-textconv --no-walk --not --null --numbered --numstat --octopus --oneline --or --others
    --parents --patch --patch-with-stat --patience --perl-regexp --pickaxe-all --pickaxe-regex
    --points-at --porcelain --porcelain=v1 --porcelain=v2 --pretty --pretty= --raw --refs
    --regexp-ignore-case --relative-date --remotes --reverse --right-only --root --short --shortstat
    --show-current --show-function --show-prefix --show-stash --show-toplevel
    --show-superproject-working-tree --simplify-by-decoration --since --since= --skip= --sort=
    --source --sparse --stage --staged --stat --stat= --submodule=short --summary --symbolic
    --symbolic-full-name --tags --text --topo-order --unified= --untracked --untracked-files=all
    --untracked-files=no --untracked-files=normal --until --until= --verbose --verify --version
    --word-diff --word-regexp
    """.split()  # noqa: SIM905 -- a table to be read
)
_CHECKS_SIGNATURE = re.compile(r"%[-+ ]?G|%\(\*?signature")
"""In a format: git starts gpg."""
_LISTING = ("-a", "-r", "-v", "-vv", "--list", "-l", "--all")
_HARMLESS_LEADING = ("--no-pager", "-P", "--version")
_WITH_VALUE = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env")
_NAMES_REPOSITORY = ("--git-dir", "--work-tree", "--bare")

# Programs that start the one behind them and change neither its words nor its folder.
PLAIN_WRAPPERS = frozenset(
    ("chrt", "command", "env", "exec", "ionice", "nice", "nohup", "setsid", "stdbuf", "taskset")
) | {"time", "timeout"}
OTHER_WRAPPERS = frozenset(
    """
    arch busybox chroot doas eval expect flock fakeroot find gdb ltrace machinectl nsenter parallel
    pkexec proxychains rlwrap runuser script ssh start-stop-daemon strace su sudo systemd-run toybox
    unbuffer unshare valgrind watch xargs xvfb-run
    """.split()  # noqa: SIM905 -- a table to be read
)
_NUMBERED = re.compile(r"-[A-Za-z]?[0-9]{1,9}")
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


def only_looks(words: Sequence[str], written: int) -> bool:
    """Whether git only looks, given that the user has written out the first words, so many.

    Where it looks, and with which settings, is for the user to write.
    """
    leading, rest = _split(words)
    free = leading[written:]
    return all(word in _HARMLESS_LEADING for word in free) and (not rest or _verb_looks(rest))


def git_at(words: Sequence[str]) -> int | None:
    """The place among the words where a git stands that is started; None without one."""
    at = next((number for number, word in enumerate(words) if is_git(word)), None)
    return at if at == 0 or program_name(words[0]) in PLAIN_WRAPPERS | OTHER_WRAPPERS else None


def git_call(words: Sequence[str]) -> GitCall | None:
    """The git that these words start, if any; UnjudgedGitError when it cannot be judged."""
    wrapper, at = program_name(words[0]), git_at(words)
    if at is None:
        return None
    if wrapper in OTHER_WRAPPERS or (
        wrapper == "env" and any(map(_LEADS_ELSEWHERE.match, words[1:at]))
    ):
        raise UnjudgedGitError(wrapper)
    return _call(words[at:])


def _call(words: Sequence[str]) -> GitCall:
    if program_name(words[0]) != "git":  # `git-upload-pack` and its like
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
    if verb in ("branch", "tag", "remote"):
        return all(word in (*_LISTING, "--show-current") for word in rest)
    if verb in _LOOKING_WITH and (not rest or rest[0] not in _LOOKING_WITH[verb]):
        return False
    looking = verb in _LOOKING or verb in _LOOKING_WITH
    return looking and all(map(_is_harmless, rest))


def _is_harmless(word: str) -> bool:
    if _CHECKS_SIGNATURE.search(word):
        return False
    return word[:1] != "-" or is_listed(word, _OPTIONS)


def is_listed(option: str, listed: Container[str]) -> bool:
    """Whether an option stands in a list such as "-v -n# --since=": exactly so."""
    name, equals, _ = option.partition("=")
    if option in listed or (equals and f"{name}=" in listed):
        return True
    return bool(_NUMBERED.fullmatch(option)) and re.sub(r"[0-9]+", "#", option) in listed


def program_name(word: str) -> str:
    """A program without its folder, as a list spells it."""
    return PurePosixPath(word.replace("\\", "/")).name.lower().removesuffix(".exe")


def is_git(word: str) -> bool:
    """Whether the word names git, or one of its programs (`git-upload-pack`)."""
    name = program_name(word)
    return name == "git" or name.startswith("git-")
