"""Files, environment and flags become one frozen configuration, each value with its origin.

Rules: (1) importing this package is quick: the validator is loaded by the first source that sets
something; (2) nothing else reads a configuration file or a variable that sets something; (3)
`Config.shown` holds secrets as the references that were written, so it may be printed;
`Config.gateway` holds the secrets themselves, and hides them in `repr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jackline.agents.prices import Price
from jackline.config.keys import Key
from jackline.errors import BadConfigError
from jackline.flows.settings import RunSettings
from jackline.gateway.settings import GatewaySettings, ListenSettings
from jackline.journal.store import JournalSettings
from jackline.mcp_server.permissions import ToolSettings
from jackline.notifications.settings import NotifySettings
from jackline.telemetry.settings import OtlpSettings

__all__ = ["Config", "HomeFolders", "ServicePlace", "load", "place_of_service"]


@dataclass(frozen=True, slots=True)
class HomeFolders:
    """Where this user's own configuration and state are."""

    config: Path
    state: Path

    @classmethod
    def of_this_user(cls) -> HomeFolders:
        """The folders that the operating system has for this."""
        import platformdirs  # noqa: PLC0415 -- whoever names the folders does not pay for it

        return cls(
            config=platformdirs.user_config_path("jackline", appauthor=False),
            state=platformdirs.user_state_path("jackline", appauthor=False),
        )


@dataclass(frozen=True, slots=True)
class ServicePlace:
    """Where the service of this configuration lives, and what is wrong elsewhere in it."""

    state_dir: Path
    listen: ListenSettings
    problem: BadConfigError | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that a Jackline process gets from outside."""

    gateway: GatewaySettings
    state_dir: Path
    journal: JournalSettings
    log_level: str
    # Dotted key to "default", "flag --port", "JACKLINE_PORT" or "/path/jackline.toml:12".
    origins: Mapping[str, str]
    # The files that were read, the strongest first.
    files: tuple[Path, ...]
    # Sentences for the log: nothing that stops the work.
    warnings: tuple[str, ...] = ()
    # How flows run that say nothing else.
    runs: RunSettings = field(default_factory=RunSettings)
    # What models cost by the user's own word, by pattern; the first that fits.
    prices: Mapping[str, Price] = field(default_factory=dict)
    # Whether sessions of Claude Code that a wall has ended go on by themselves at its reset.
    continue_sessions: bool = False
    # What models may have done for them.
    tools: ToolSettings = field(default_factory=ToolSettings)
    # Who gets messages about incidents.
    notify: NotifySettings = field(default_factory=NotifySettings)
    # Where spans are sent.
    otlp: OtlpSettings = field(default_factory=OtlpSettings)
    # Every key with its value as one would write it, None where nothing is set.
    shown: Mapping[Key, object] = field(default_factory=dict, repr=False)
    # Files whose change, coming or going would give another configuration: the user's, and those
    # that lie where a project's file could.
    watched: tuple[Path, ...] = field(default=(), repr=False)
    watched_of_projects: tuple[Path, ...] = field(default=(), repr=False)


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
    from jackline.config.loader import Loader  # noqa: PLC0415 -- loads every settings class

    loader = Loader(folders or HomeFolders.of_this_user())
    loader.read(flags or {}, environ, cwd, in_dollars=in_dollars)
    return loader.config(environ if with_secrets else None)


def place_of_service(
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    cwd: Path,
) -> ServicePlace:
    """Where the service lives, also while the configuration has faults.

    For whoever wants to end it or to get round it: a running service keeps its old configuration,
    and a slip in the new one must not stand between it and its user.
    """
    from jackline.config.loader import Loader  # noqa: PLC0415 -- loads every settings class

    loader = Loader(HomeFolders.of_this_user())
    loader.read(flags or {}, environ, cwd)
    return loader.place()
