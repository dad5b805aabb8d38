"""Turn files, environment and flags into one frozen configuration, or into all their faults.

Rules: (1) flag, then JACKLINE_*, then what counts of the nearest project file, then the user's
file, then default; (2) all faults are reported at once, but faults of a project's file stop
nothing; (3) nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jackline.agents.prices import Price
from jackline.budgets.budget import Budget
from jackline.config import Config, HomeFolders, ServicePlace, keys, references
from jackline.config.declaration import DEFAULTS, may_be_reference
from jackline.config.faults import ConfigFault, config_error
from jackline.config.files import (
    FILE_NAME,
    FileText,
    UnusableFileError,
    candidates,
    find_project_file,
    is_file,
    read_named,
)
from jackline.config.keys import dotted
from jackline.config.layers import Layer
from jackline.config.project import (
    CONSENT_FILE,
    ConsentRecord,
    ConsentStatus,
    IgnoredSettings,
    restrict,
)
from jackline.config.upstreams import Upstreams
from jackline.flows.settings import Reserve, RunSettings, WakeSettings
from jackline.gateway.settings import GatewaySettings, ListenSettings
from jackline.journal.store import JournalSettings
from jackline.local_address import is_loopback
from jackline.mcp_server.permissions import ToolSettings
from jackline.notifications.settings import NotifySettings
from jackline.providers.settings import UpstreamSettings
from jackline.telemetry.settings import OtlpSettings

_T = TypeVar("_T")


def load_alone(file: FileText, folders: HomeFolders) -> Config:
    """The configuration that this file makes by itself; no secret is looked up."""
    loader = Loader(folders)
    loader.files.append(file)
    loader.merged.take(Layer.from_file(file))
    return loader.config(None)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a project's file would change if the user agreed to it; no secret is looked up."""

    consent: ConsentStatus
    ignored: IgnoredSettings
    # The upstreams that calls would go to; none if the file lists none, or none that can count.
    upstreams: tuple[UpstreamSettings, ...]
    # Settings that count without asking.
    free: tuple[str, ...]
    faults: tuple[str, ...]


def preview(file: FileText, folders: HomeFolders) -> Preview:
    """What this project's file says, and what of it would count."""
    merged = Layer()
    own = folders.config / FILE_NAME
    try:
        users = read_named(own) if is_file(own) else None
    except UnusableFileError:
        users = None  # the user's own faults are reported elsewhere
    holds = Layer() if users is None else Layer.from_file(users)
    layer, ignored = restrict(
        Layer.from_file(file),
        file,
        holds.values,
        ConsentStatus.AGREED,
        in_dollars=holds.limits_dollars,
    )
    free = tuple(sorted(dotted(key) for key in layer.values if key[0] != "upstream"))
    merged.take(layer)
    listed = bool(merged.upstreams)
    for key, value in DEFAULTS.items():
        if key[0] != "upstream":
            merged.fill(key, value)
    upstreams = Upstreams(merged)
    upstreams.check(merged.values["listen", "port"])
    is_sound = listed and not merged.faults
    return Preview(
        ConsentRecord(folders.state).status(file),
        ignored,
        upstreams.settings() if is_sound else (),
        free,
        tuple(str(fault) for fault in (*ignored.faults, *merged.faults)),
    )


class Loader:
    """Reads all sources that hold for one process, and makes its configuration of them."""

    def __init__(self, folders: HomeFolders) -> None:
        self.folders = folders
        self.merged = Layer()
        # Those that count, the strongest first; and every place that could hold one.
        self.files: list[FileText] = []
        self.watched: list[Path] = []
        self.watched_of_projects: list[Path] = []

    def read(
        self,
        flags: Mapping[str, object],
        environ: Mapping[str, str],
        cwd: Path,
        *,
        in_dollars: bool = False,
    ) -> None:
        """Merge all sources; `in_dollars` says that another limit in dollars holds."""
        cwd, merged = cwd.absolute(), self.merged
        self._find_files(
            str(flags.get(keys.FILE_FLAG) or environ.get(keys.FILE_VARIABLE) or ""), cwd
        )
        stronger = [Layer.from_environment(environ, cwd), Layer.from_flags(flags, cwd)]
        in_dollars = in_dollars or any(layer.limits_dollars for layer in stronger)
        for file in reversed(self.files):
            layer = Layer.from_file(file)
            if not file.of_project:
                merged.take(layer)
                continue
            counted, ignored = restrict(
                layer,
                file,
                merged.values,
                ConsentRecord(self.folders.state).status(file),
                in_dollars=in_dollars or merged.limits_dollars,
            )
            merged.take(counted)
            warning = ignored.warning(file.path, self.folders.config / FILE_NAME)
            if warning is not None:
                merged.warnings.append(warning)
        for layer in stronger:
            merged.take(layer)

    def _find_files(self, named: str, cwd: Path) -> None:
        merged, users = self.merged, self.folders.config / FILE_NAME
        try:
            explicit = references.path_from(cwd, named) if named else None
        except ValueError as error:
            merged.faults.append(ConfigFault(keys.FILE_VARIABLE, "", str(error)))
            explicit = None
        if explicit:
            self.watched, found = [explicit], []
        else:
            self.watched = [users, self.folders.state / CONSENT_FILE]
            self.watched_of_projects = [*candidates(cwd)]
            found = [find_project_file(cwd, users, merged.warnings)]
        try:
            if explicit or is_file(users):
                found.append(read_named(explicit or users))
        except UnusableFileError as error:
            place = str(error.path) if error.line is None else f"{error.path}:{error.line}"
            merged.faults.append(ConfigFault(place, "", error.what))
        files = {file.path: file for file in reversed(found) if file is not None}
        self.files = list(reversed(files.values()))

    def place(self) -> ServicePlace:
        """Where the service lives, as far as that can be read; faults are returned, not raised."""
        merged = self.merged
        for key, value in {**DEFAULTS, ("state",): str(self.folders.state)}.items():
            if key[0] in ("state", "listen"):
                merged.fill(key, value)
        return ServicePlace(
            Path(merged.values["state",]),
            _convert(merged.table("listen"), ListenSettings),
            config_error(merged.faults) if merged.faults else None,
        )

    def config(self, environ: Mapping[str, str] | None) -> Config:
        """What holds in the end; with an environment, secrets are looked up."""
        merged = self.merged
        for key, value in {**DEFAULTS, ("state",): str(self.folders.state)}.items():
            if key[0] != "upstream":
                merged.fill(key, value)
        upstreams = Upstreams(merged)
        upstreams.warn(next((file.path for file in self.files if file.of_project), None))
        shown = dict(merged.values)
        secrets = [shown[key] for key in shown if may_be_reference(key)]
        watched = self.watched + [path for each in secrets if (path := references.file_of(each))]
        is_sound = not merged.faults
        self._check_together()
        upstreams.check(merged.values["listen", "port"])
        if environ is not None and is_sound:
            merged.look_up_secrets(environ)
        if merged.faults:
            raise config_error(merged.faults)
        table = merged.table()
        return Config(
            gateway=replace(_convert(table, GatewaySettings), upstreams=upstreams.settings()),
            state_dir=Path(table["state"]),
            journal=_convert(table["journal"], JournalSettings),
            runs=_runs(table),
            prices={pattern: _price(price) for pattern, price in table.get("prices", {}).items()},
            continue_sessions=table["resume"]["sessions"],
            tools=_convert(table, ToolSettings),
            notify=_convert(table["notify"], NotifySettings),
            otlp=_convert(table["otlp"], OtlpSettings),
            log_level=table["log"]["level"],
            origins={dotted(key): origin for key, origin in merged.origins.items()},
            files=tuple(file.path for file in self.files),
            warnings=tuple(merged.warnings),
            shown=shown,
            watched=tuple(dict.fromkeys(watched)),
            watched_of_projects=tuple(self.watched_of_projects),
        )

    def _check_together(self) -> None:
        """What no single value can be blamed for."""
        merged = self.merged
        listen = merged.table("listen")
        token_is_wrong = any(fault.key == "listen.token" for fault in merged.faults)
        if not is_loopback(listen["host"]) and "token" not in listen and not token_is_wrong:
            merged.fault(
                ("listen", "host"),
                "listening on another address than loopback lets everyone in who reaches it;"
                ' set listen.token = "file:PATH" too, or listen on 127.0.0.1',
            )
        rolling = merged.table("budget", "rolling")
        if rolling and ("per" not in rolling or not rolling.keys() & {"tokens", "dollars"}):
            merged.fault(
                ("budget", "rolling", *list(rolling)[:1]),
                'a rolling budget needs its span and what is counted: per = "5h" and tokens or'
                " dollars",
            )
        limits = merged.table("budget")
        if limits.get("strict") and not limits.keys() & {"tokens", "dollars"}:
            merged.fault(
                ("budget", "strict"), "a strict budget needs what it limits: tokens or dollars"
            )
        for pattern, price in merged.table("prices").items():
            if not {"input", "output"} <= price.keys():
                written = next(key for key in merged.values if key[:2] == ("prices", pattern))
                merged.fault(written, "a price needs both: input and output, for a million tokens")


def _convert(table: Mapping[str, Any], kind: type[_T]) -> _T:
    """These values as settings; keys that this class does not have are left out."""
    return msgspec.convert(table, kind, dec_hook=lambda _, path: Path(path).expanduser())


def _runs(table: Mapping[str, Any]) -> RunSettings:
    limits = dict(table.get("budget", {}))
    rolling = limits.pop("rolling", {})
    budgets = [Budget(seconds=limits.pop("time", None), **limits)] if limits else []
    if rolling:
        budgets.append(Budget(window=rolling.pop("per"), **rolling))
    return replace(
        _convert(table["run"], RunSettings),
        budgets=tuple(budgets),
        wake=_convert(table["resume"], WakeSettings),
        reserve=_convert(table["reserve"], Reserve) if "share" in table["reserve"] else None,
    )


def _price(table: Mapping[str, float]) -> Price:
    # What is not set costs the full price: a budget may stop early, never late.
    full = table["input"]
    written = table.get("cache_write", full)
    return Price(
        full,
        table["output"],
        table.get("cache_read", full),
        written,
        table.get("cache_write_1h", max(2 * full, written)),
    )
