"""Turn files, environment and flags into one frozen configuration, or into all their faults.

Rules: (1) flag, then JACKLINE_*, then what counts of the nearest project file, then the user's
file, then default; (2) all faults are reported at once, but faults of a project's file stop
nothing; (3) nothing is written.
Not here: the sources one by one and their merging (layers.py), the rules for upstreams
(upstreams.py), noticing changes (watcher.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jackline.agents.prices import Price
from jackline.budgets.budget import Budget
from jackline.config import keys, references, upstreams
from jackline.config.document import ConfigFault, config_error, defaults
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
from jackline.config.layers import (
    MergedLayers,
    is_looked_up_later,
    layer_from_environment,
    layer_from_file,
    layer_from_flags,
    may_be_secret,
)
from jackline.config.project import CONSENT_FILE as CONSENTS
from jackline.config.project import (
    ConsentStatus,
    IgnoredSettings,
    consent_status,
    has_limit_in_dollars,
    restrict,
    warning,
)
from jackline.config.settings import Config, HomeFolders, ServicePlace
from jackline.config.upstreams import is_loopback
from jackline.flows.settings import Reserve, RunSettings, WakeSettings
from jackline.gateway.settings import (
    CacheSettings,
    CapSettings,
    GatewaySettings,
    HoldSettings,
    LimitSettings,
    ListenSettings,
    StreamMode,
)
from jackline.journal.store import JournalSettings
from jackline.lanes import CacheTtl
from jackline.mcp_server.permissions import AgentSettings, BatchSettings, ToolSettings
from jackline.notifications.settings import IncidentKind, NotifySettings
from jackline.providers.settings import UpstreamSettings
from jackline.telemetry.settings import OtlpSettings

# Keys of `[limits]` to the names of their settings.
_TAKEN = {
    "headers": "header_bytes",
    "body": "body_bytes",
    "connections": "connections",
    "waiting_calls": "waiting_calls",
    "header_time": "header_seconds",
    "unfinished_bodies": "unfinished_bytes",
    "held_bodies": "held_bytes",
    "answer": "answer_bytes",
    "answer_time": "answer_seconds",
    "body_pause": "body_pause_seconds",
    "body_pace": "body_pace",
    "idle": "idle_seconds",
    "drain": "drain_seconds",
}


def load_alone(file: FileText, folders: HomeFolders) -> Config:
    """The configuration that this file makes by itself; no secret is looked up."""
    merged = MergedLayers()
    merged.take(layer_from_file(file))
    return _finished(merged, [file], [], folders, None)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a project's file would change if the user agreed to it; no secret is looked up."""

    standing: ConsentStatus
    ignored: IgnoredSettings
    # The upstreams that calls would go to; none if the file lists none, or none that can count.
    upstreams: tuple[UpstreamSettings, ...]
    # Settings that count without asking.
    free: tuple[str, ...]
    faults: tuple[str, ...]


def preview(file: FileText, folders: HomeFolders) -> Preview:
    """What this project's file says, and what of it would count."""
    merged = MergedLayers()
    own = folders.config / FILE_NAME
    try:
        users = read_named(own) if is_file(own) else None
    except UnusableFileError:
        users = None  # the user's own faults are told elsewhere
    holds = {} if users is None else layer_from_file(users).values
    layer, ignored = restrict(
        layer_from_file(file),
        file,
        holds,
        ConsentStatus.AGREED,
        in_dollars=has_limit_in_dollars(holds),
    )
    free = tuple(sorted(dotted(key) for key in layer.values if key[0] != "upstream"))
    merged.take(layer)
    listed = bool(merged.upstreams)
    for key, value in defaults().items():
        if key[0] != "upstream":
            merged.fill(key, value)
    upstreams.complete(merged)
    upstreams.check(merged, merged.values["listen", "port"])
    is_sound = listed and not merged.faults
    return Preview(
        consent_status(file, folders.state),
        ignored,
        upstreams.settings(merged) if is_sound else (),
        free,
        tuple(str(fault) for fault in (*ignored.faults, *merged.faults)),
    )


def load_document(
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    cwd: Path,
    folders: HomeFolders,
    with_secrets: bool,
    in_dollars: bool,
) -> Config:
    """The configuration that holds here and now; BadConfigError tells all that is wrong."""
    merged = MergedLayers()
    files, watched = _take_all(
        merged, flags, environ, cwd.absolute(), folders, in_dollars=in_dollars
    )
    return _finished(merged, files, watched, folders, environ if with_secrets else None)


def load_place(
    *, flags: Mapping[str, object], environ: Mapping[str, str], cwd: Path, folders: HomeFolders
) -> ServicePlace:
    """Where the service lives, as far as that can be read; faults are handed over, not raised."""
    merged = MergedLayers()
    _take_all(merged, flags, environ, cwd.absolute(), folders)
    for key, value in (defaults() | {("state",): str(folders.state)}).items():
        if key[0] in ("state", "listen"):
            merged.fill(key, value)
    return ServicePlace(
        Path(merged.values["state",]),
        _listen(merged),
        config_error(merged.faults) if merged.faults else None,
    )


def _take_all(
    merged: MergedLayers,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    cwd: Path,
    folders: HomeFolders,
    *,
    in_dollars: bool = False,
) -> tuple[list[FileText], list[Path]]:
    """Let every source have its say; the files that count, and every place that could hold one."""
    named = str(flags.get(keys.FILE_FLAG) or environ.get(keys.FILE_VARIABLE) or "")
    files, watched = _files(merged, named, cwd, folders)
    of_variables: list[str] = []
    stronger = [layer_from_environment(environ, cwd, of_variables), layer_from_flags(flags, cwd)]
    in_dollars = in_dollars or any(has_limit_in_dollars(layer.values) for layer in stronger)
    for file in reversed(files):
        if file.of_project:
            _take_project(merged, file, folders, in_dollars=in_dollars)
        else:
            merged.take(layer_from_file(file))
    merged.warnings += of_variables
    for layer in stronger:
        merged.take(layer)
    return files, watched


def _take_project(
    merged: MergedLayers, file: FileText, folders: HomeFolders, *, in_dollars: bool
) -> None:
    standing = consent_status(file, folders.state)
    in_dollars = in_dollars or has_limit_in_dollars(merged.values)
    layer, ignored = restrict(
        layer_from_file(file), file, merged.values, standing, in_dollars=in_dollars
    )
    merged.take(layer)
    told = warning(file.path, ignored, folders.config / FILE_NAME)
    if told is not None:
        merged.warnings.append(told)


def _finished(
    merged: MergedLayers,
    files: list[FileText],
    watched: list[Path],
    folders: HomeFolders,
    environ: Mapping[str, str] | None,
) -> Config:
    """What holds in the end; with an environment, secrets are looked up."""
    for key, value in (defaults() | {("state",): str(folders.state)}).items():
        if key[0] != "upstream":
            merged.fill(key, value)
    upstreams.complete(merged)
    project = next((file.path for file in files if file.of_project), None)
    upstreams.withhold_admin_keys(merged, project)
    upstreams.warn(merged, project)
    shown = dict(merged.values)
    secrets = [key for key in shown if may_be_secret(key)]
    watched = watched + [path for key in secrets if (path := references.file_of(shown[key]))]
    is_sound = not merged.faults
    _check_together(merged)
    if environ is not None and is_sound:
        _look_up_secrets(merged, environ)
    if merged.faults:
        raise config_error(merged.faults)
    return Config(
        gateway=_gateway(merged),
        state_dir=Path(merged.values["state",]),
        journal=JournalSettings(
            keep_days=merged.values["journal", "keep"] / 86400,
            keep_bytes=merged.values["journal", "size"],
        ),
        runs=_runs(merged),
        prices={pattern: _price(merged, pattern) for pattern in _priced(merged)},
        continue_sessions=merged.values["resume", "sessions"],
        tools=_tools(merged),
        notify=_notify(merged),
        otlp=OtlpSettings(**merged.table("otlp")),
        log_level=merged.values["log", "level"],
        origins={dotted(key): origin for key, origin in merged.origins.items()},
        files=tuple(file.path for file in files),
        warnings=tuple(merged.warnings),
        shown=shown,
        watched=tuple(dict.fromkeys(watched)),
    )


def _files(
    merged: MergedLayers, named: str, cwd: Path, folders: HomeFolders
) -> tuple[list[FileText], list[Path]]:
    """The files that count, the strongest first, and every place that could hold one."""
    users = folders.config / FILE_NAME
    explicit = _named_file(merged, named, cwd)
    watched = [explicit] if explicit else [*candidates(cwd), users, folders.state / CONSENTS]
    found: list[FileText | None] = []
    try:
        if explicit is not None:
            found.append(read_named(explicit))
        else:
            found.append(find_project_file(cwd, users, merged.warnings))
    except UnusableFileError as error:
        merged.faults.append(_unusable(error))
    try:
        if explicit is None and is_file(users):
            found.append(read_named(users))
    except UnusableFileError as error:
        merged.faults.append(_unusable(error))
    files = {file.path: file for file in reversed(found) if file is not None}
    return list(reversed(files.values())), watched


def _named_file(merged: MergedLayers, named: str, cwd: Path) -> Path | None:
    try:
        return references.path_from(cwd, named) if named else None
    except ValueError as error:
        merged.faults.append(ConfigFault(keys.FILE_VARIABLE, "", str(error)))
        return None


def _unusable(error: UnusableFileError) -> ConfigFault:
    place = str(error.path) if error.line is None else f"{error.path}:{error.line}"
    return ConfigFault(place, "", error.what)


def _look_up_secrets(merged: MergedLayers, environ: Mapping[str, str]) -> None:
    for key, reference in list(merged.values.items()):
        if not may_be_secret(key) or reference is None or not references.is_reference(reference):
            continue
        if not is_looked_up_later(key):
            try:
                merged.values[key] = references.resolve(reference, environ)
            except ValueError as error:
                merged.fault(key, str(error))
        path = references.file_of(reference)
        exposed = None if path is None else references.exposure(path)
        if exposed is not None:
            merged.warnings.append(f"{dotted(key)}: {exposed}")


def _check_together(merged: MergedLayers) -> None:
    """What no single value can be blamed for."""
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
            'a rolling budget needs its span and what is counted: per = "5h" and tokens or dollars',
        )
    limits = merged.table("budget")
    if limits.get("strict") and not limits.keys() & {"tokens", "dollars"}:
        merged.fault(
            ("budget", "strict"), "a strict budget needs what it limits: tokens or dollars"
        )
    for pattern in _priced(merged):
        if not {"input", "output"} <= merged.table("prices", pattern).keys():
            written = next(key for key in merged.values if key[:2] == ("prices", pattern))
            merged.fault(written, "a price needs both: input and output, for a million tokens")
    upstreams.check(merged, listen["port"])


def _listen(merged: MergedLayers) -> ListenSettings:
    table = merged.table("listen")
    return ListenSettings(**table | {"names": tuple(table["names"])})


def _gateway(merged: MergedLayers) -> GatewaySettings:
    taken = merged.table("limits")
    return GatewaySettings(
        listen=_listen(merged),
        upstreams=upstreams.settings(merged),
        never_degrade=tuple(merged.values["never_degrade",]),
        stream=StreamMode(merged.values["stream",]),
        hold=HoldSettings(**merged.table("hold")),
        caps=CapSettings(**merged.table("caps"), tags=merged.table("caps", "tags")),
        cache=_cache(merged),
        limits=LimitSettings(**{_TAKEN[name]: value for name, value in taken.items()}),
    )


def _cache(merged: MergedLayers) -> CacheSettings:
    return CacheSettings(
        CacheTtl(merged.values["cache", "ttl"]),
        {tag: CacheTtl(said) for tag, said in merged.table("cache", "tags").items()},
        {name: CacheTtl(said) for name, said in merged.table("cache", "classes").items()},
    )


def _runs(merged: MergedLayers) -> RunSettings:
    limits = merged.table("budget")
    limits.pop("rolling", None)
    rolling = merged.table("budget", "rolling")
    budgets = []
    if limits:
        budgets.append(Budget(seconds=limits.pop("time", None), **limits))
    if rolling:
        budgets.append(Budget(window=rolling.pop("per"), **rolling))
    brakes = merged.table("resume")
    brakes.pop("sessions")
    wake = WakeSettings(**brakes)
    share = merged.values["reserve", "share"]
    classes = tuple(merged.values["reserve", "classes"])
    reserve = None if share is None else Reserve(share, classes)
    return RunSettings(budgets=tuple(budgets), wake=wake, reserve=reserve, **merged.table("run"))


def _priced(merged: MergedLayers) -> list[str]:
    """The patterns of models that have a price of the user's own, as they were written."""
    return list(dict.fromkeys(str(key[1]) for key in merged.values if key[0] == "prices"))


def _price(merged: MergedLayers, pattern: str) -> Price:
    table = merged.table("prices", pattern)
    # What is not said is counted at the full price: a budget may stop early, never late.
    full = table["input"]
    written = table.get("cache_write", full)
    return Price(
        full,
        table["output"],
        table.get("cache_read", full),
        written,
        table.get("cache_write_1h", max(2 * full, written)),
    )


def _notify(merged: MergedLayers) -> NotifySettings:
    table = merged.table("notify")
    table["on"] = tuple(IncidentKind(each) for each in table["on"])
    return NotifySettings(**table)


def _tools(merged: MergedLayers) -> ToolSettings:
    agents = merged.table("agents")
    agents["tools"] = tuple(agents["tools"])
    agents["runners"] = tuple(agents["runners"])
    agents["folders"] = tuple(Path(each).expanduser() for each in agents["folders"])
    allow = tuple(merged.values["batch", "allow"])
    return ToolSettings(AgentSettings(**agents), BatchSettings(allow))
