"""The variables with which git runs where it must not do what its repository says.

Rules: (1) pure; (2) variables that point git elsewhere are left out: the folder in which git is
started says which repository it is; (3) what the user has set by variables stays, and comes before
the guard's own settings, of which the last one counts; (4) git is taken from absolute folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jackline.programs import absolute_path

# Settings that win over the repository's. Not every git hands them on to the one that it starts in
# a submodule (2.39 does), so submodules are checked as if none did (asking.py).
_OVERRIDES = {
    "core.fsmonitor": "false",
    # A clone can bring a bare repository, with any settings, in a subfolder.
    "safe.bareRepository": "explicit",
    # Which commit a submodule is at is told; whether its files changed, only a git there could say.
    "diff.ignoreSubmodules": "dirty",
    "fetch.recurseSubmodules": "false",
    "push.recurseSubmodules": "no",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
}
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat"}
# Missing objects would be fetched, by programs that the repository names (a promisor remote).
_NO_LAZY_FETCH = {"GIT_NO_LAZY_FETCH": "1"}
# For a git that does not know that variable, too, there is then no way to fetch.
_ALONE = {"GIT_ALLOW_PROTOCOL": "none"}
# Not `file`: a repository would name others of the user's. Not `ext` and helpers: programs.
_CONNECTED = {"GIT_ALLOW_PROTOCOL": "http:https:ssh:git"}
_LOOKING = {"GIT_OPTIONAL_LOCKS": "0"}
_ELSEWHERE = frozenset(
    """
    GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_ATTR_SOURCE GIT_CEILING_DIRECTORIES GIT_COMMON_DIR
    GIT_CONFIG GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_DIR GIT_GRAFT_FILE
    GIT_IMPLICIT_WORK_TREE GIT_INDEX_FILE GIT_NAMESPACE GIT_OBJECT_DIRECTORY GIT_PREFIX
    GIT_REPLACE_REF_BASE GIT_SHALLOW_FILE GIT_WORK_TREE
    """.split()  # noqa: SIM905 -- a table to be read
)


@dataclass(frozen=True, slots=True)
class Guard:
    """What a git may do: by default it only looks."""

    looking: bool = True
    """It changes nothing, and so it fetches nothing either."""
    connecting: bool = False
    """Its verb is one that talks to another repository."""
    fetching: bool = False
    """Its verb is one that fetches, and so may fetch what is missing, too."""
    hooks: str | None = os.devnull
    """The only folder of hooks that counts; None where git is to say which one would."""

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The given variables with the guard's, and without those that point git elsewhere."""
        kept = {name: text for name, text in environ.items() if not _points_elsewhere(name)}
        settings = [*_settings_in(environ), *_OVERRIDES.items()]
        if self.hooks is not None:
            settings.append(("core.hooksPath", self.hooks))
        numbered = {"GIT_CONFIG_COUNT": str(len(settings))}
        for number, (name, value) in enumerate(settings):
            numbered |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        means = dict(_CONNECTED if self.connecting else _ALONE)
        means |= {} if self.fetching else _NO_LAZY_FETCH
        means |= _LOOKING if self.looking else {}
        return {**kept, "PATH": absolute_path(environ), **numbered, **_QUIET, **means}


def _points_elsewhere(name: str) -> bool:
    numbered = name.startswith(("GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"))
    return numbered or name in _ELSEWHERE


def _settings_in(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The user's own settings among the variables, as far as they are whole."""
    count = environ.get("GIT_CONFIG_COUNT", "")
    for number in range(int(count) if count.isdecimal() and len(count) < 4 else 0):
        name = environ.get(f"GIT_CONFIG_KEY_{number}")
        value = environ.get(f"GIT_CONFIG_VALUE_{number}")
        if name is None or value is None:
            return
        yield name, value
