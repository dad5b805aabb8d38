"""Run git in somebody else's repository without running what it names: all git is guarded here.

Rules: (1) a repository's own settings may hold only what is known to be inert; any other makes it
foreign, and `ForeignRepositoryError` names it; (2) what git would start beside settings (hooks,
monitors, lazy fetches, bare repositories in subfolders) is switched off by variables, and the git
that is asked and the git that is run have the same ones; (3) what cannot be asked is a refusal;
where git sees no repository, there is nothing to refuse; (4) what the user has set for all
repositories is the user's own and runs (docs/decisions/058, 060).
"""

from jackline.foreign_repositories.git_folders import (
    MisplacedRepositoryError,
    is_git_folder,
    named_git_folder,
)
from jackline.foreign_repositories.guard import GitGuard
from jackline.foreign_repositories.repository_check import (
    ForeignRepositoryError,
    GitRun,
    ask_git,
    guard_for,
)

__all__ = [
    "ForeignRepositoryError",
    "GitGuard",
    "GitRun",
    "MisplacedRepositoryError",
    "ask_git",
    "guard_for",
    "is_git_folder",
    "named_git_folder",
]
