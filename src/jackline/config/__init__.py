"""Files, environment and flags become frozen settings.

Rules: (1) importing this package is quick: the validator is loaded by the first `load`; (2) nothing
else reads a configuration file or a variable that sets something.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jackline.config.settings import Config, HomeFolders, ServicePlace

__all__ = ["Config", "HomeFolders", "ServicePlace", "load", "place_of_service"]


def load(
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    cwd: Path,
    folders: HomeFolders | None = None,
    with_secrets: bool = True,
    in_dollars: bool = False,
) -> Config:
    """The configuration that holds here and now; BadConfigError lists all that is wrong.

    `flags` go by their names (`port`, `host`, `upstream`, `state`, `stream`, `afk`, `log_level`,
    `config`) or by dotted keys; None is not set. Without secrets their references are checked
    but not followed, and are in their places: enough to show settings, not to run by them.
    `in_dollars` says that there is a limit in dollars beyond the configuration.
    """
    from jackline.config.loader import load_document  # noqa: PLC0415 -- loads pydantic

    return load_document(
        flags=flags or {},
        environ=environ,
        cwd=cwd,
        folders=folders or HomeFolders.of_this_user(),
        with_secrets=with_secrets,
        in_dollars=in_dollars,
    )


def place_of_service(
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    cwd: Path,
    folders: HomeFolders | None = None,
) -> ServicePlace:
    """Where the service lives, also while the configuration has faults.

    For whoever wants to end it or to get round it: a running service keeps its old configuration,
    and a slip in the new one must not stand between it and its user.
    """
    from jackline.config.loader import load_place  # noqa: PLC0415 -- loads pydantic

    found = folders or HomeFolders.of_this_user()
    return load_place(flags=flags or {}, environ=environ, cwd=cwd, folders=found)
