"""Files, environment and flags become frozen settings.

Laws: (1) importing this room is quick: the validator is loaded by the first `load`; (2) nothing
else in the house reads a configuration file or a JACKLINE_* variable.
Not here: what the settings do (the rooms below).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jackline.config.settings import Config, HomeFolders

__all__ = ["Config", "HomeFolders", "load"]


def load(
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    cwd: Path,
    folders: HomeFolders | None = None,
    with_secrets: bool = True,
) -> Config:
    """The configuration that holds here and now; BadConfigError tells all that is wrong.

    `flags` go by their names (`port`, `host`, `upstream`, `state`, `stream`, `afk`, `log_level`,
    `config`) or by dotted keys; None is not given. Without secrets their references are checked
    but not followed, and stand in their places: enough to show settings, not to run by them.
    """
    from jackline.config.loading import load_document  # noqa: PLC0415 -- loads pydantic

    return load_document(
        flags=flags or {},
        environ=environ,
        cwd=cwd,
        folders=folders or HomeFolders.of_this_user(),
        with_secrets=with_secrets,
    )
