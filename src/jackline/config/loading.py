"""Turn files, environment and flags into one frozen configuration, or into all their faults.

Laws: (1) flag, then JACKLINE_*, then the nearest project file, then the user's file, then default;
(2) a source that names an upstream's address names the upstream anew: limits, proxy and authorities
of another one must not stick to it; (3) all faults of all sources are told at once; (4) nothing is
written.
Not here: the sources one by one (layers.py), noticing changes (watching.py).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jackline.config import keys, references
from jackline.config.document import defaults
from jackline.config.faults import Fault, rejection
from jackline.config.keys import Key, dotted
from jackline.config.layers import SECRETS, Layer, of_environment, of_file, of_flags
from jackline.config.places import (
    FILE_NAME,
    FileText,
    UnusableFileError,
    candidates,
    find_project_file,
    is_file,
    read_named,
)
from jackline.config.settings import Config, HomeFolders
from jackline.gateway.settings import (
    CapSettings,
    GatewaySettings,
    HoldSettings,
    LimitSettings,
    ListenSettings,
    StreamMode,
)
from jackline.journal.settings import JournalSettings
from jackline.lanes import KnownLimits
from jackline.providers.settings import UpstreamSettings

# Keys of `[limits]` to the names of their settings.
_TAKEN = {
    "headers": "header_bytes",
    "body": "body_bytes",
    "connections": "connections",
    "waiting_calls": "waiting_calls",
    "header_time": "header_seconds",
    "body_pause": "body_pause_seconds",
    "idle": "idle_seconds",
    "drain": "drain_seconds",
}


@dataclass(slots=True)
class _Merged:
    values: dict[Key, Any]
    origins: dict[Key, str]
    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def take(self, layer: Layer) -> None:
        """Let a stronger source have its way."""
        self.faults += layer.faults
        if ("upstream", "url") in layer.values:
            for key in [key for key in self.values if key[0] == "upstream"]:
                del self.values[key], self.origins[key]
        self.values |= layer.values
        self.origins |= layer.origins

    def fault(self, key: Key, what: str) -> None:
        self.faults.append(Fault(self.origins.get(key, "default"), dotted(key), what))

    def table(self, *under: str) -> dict[str, Any]:
        """The set values directly in this table, None left out."""
        return {
            key[-1]: value
            for key, value in self.values.items()
            if key[:-1] == under and value is not None
        }


def load_document(
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    cwd: Path,
    folders: HomeFolders,
    with_secrets: bool,
) -> Config:
    """The configuration that holds here and now; BadConfigError tells all that is wrong."""
    cwd = cwd.absolute()
    merged = _Merged({}, {})
    named = str(flags.get(keys.FILE_FLAG) or environ.get(keys.FILE_VARIABLE) or "")
    files, watched = _files(merged, named, cwd, folders)
    for file in reversed(files):
        merged.take(of_file(file))
        _warn_of_strange_upstream(merged, file)
    merged.take(of_environment(environ, cwd, merged.warnings))
    merged.take(of_flags(flags, cwd))
    for key, value in (defaults() | {("state",): str(folders.state)}).items():
        merged.values.setdefault(key, value)
        merged.origins.setdefault(key, "default")
    shown = dict(merged.values)
    watched += [path for key in SECRETS if (path := references.file_of(shown.get(key)))]
    if with_secrets and not merged.faults:
        _look_up_secrets(merged, environ)
    _check_together(merged)
    if merged.faults:
        raise rejection(merged.faults)
    return Config(
        gateway=_gateway(merged),
        state_dir=Path(merged.values["state",]),
        journal=JournalSettings(
            keep_days=merged.values["journal", "keep"] / 86400,
            keep_bytes=merged.values["journal", "size"],
        ),
        log_level=merged.values["log", "level"],
        origins={dotted(key): origin for key, origin in merged.origins.items()},
        files=tuple(file.path for file in files),
        warnings=tuple(merged.warnings),
        shown=shown,
        watched=tuple(dict.fromkeys(watched)),
    )


def _files(
    merged: _Merged, named: str, cwd: Path, folders: HomeFolders
) -> tuple[list[FileText], list[Path]]:
    """The files that count, the strongest first, and every place that could hold one."""
    users = folders.config / FILE_NAME
    explicit = _named_file(merged, named, cwd)
    watched = [explicit] if explicit else [*candidates(cwd), users]
    found: list[FileText | None] = []
    try:
        if explicit is not None:
            found.append(read_named(explicit))
        else:
            found.append(find_project_file(cwd, merged.warnings))
    except UnusableFileError as error:
        merged.faults.append(_unusable(error))
    try:
        if explicit is None and is_file(users):
            found.append(read_named(users))
    except UnusableFileError as error:
        merged.faults.append(_unusable(error))
    files = {file.path: file for file in reversed(found) if file is not None}
    return list(reversed(files.values())), watched


def _warn_of_strange_upstream(merged: _Merged, file: FileText) -> None:
    """Whoever cloned a repository should hear that it decides where credentials are sent."""
    url = merged.values.get(("upstream", "url"))
    if file.of_project and url is not None and "upstream" in file.table:
        place = merged.origins["upstream", "url"]
        if place.startswith(str(file.path)) and not is_loopback(urlsplit(url).hostname or ""):
            merged.warnings.append(f"calls and credentials go to {url}, as {place} says")


def _named_file(merged: _Merged, named: str, cwd: Path) -> Path | None:
    try:
        return references.path_from(cwd, named) if named else None
    except ValueError as error:
        merged.faults.append(Fault(keys.FILE_VARIABLE, "", str(error)))
        return None


def _unusable(error: UnusableFileError) -> Fault:
    place = str(error.path) if error.line is None else f"{error.path}:{error.line}"
    return Fault(place, "", error.what)


def _look_up_secrets(merged: _Merged, environ: Mapping[str, str]) -> None:
    for key in SECRETS:
        reference = merged.values[key]
        if reference is None or not references.is_reference(reference):
            continue
        try:
            merged.values[key] = references.resolve(reference, environ)
        except ValueError as error:
            merged.fault(key, str(error))
        path = references.file_of(reference)
        exposed = None if path is None else references.exposure(path)
        if exposed is not None:
            merged.warnings.append(f"{dotted(key)}: {exposed}")


def _check_together(merged: _Merged) -> None:
    """What no single value can be blamed for."""
    listen = merged.table("listen")
    token_is_wrong = any(fault.key == "listen.token" for fault in merged.faults)
    if not is_loopback(listen["host"]) and "token" not in listen and not token_is_wrong:
        merged.fault(
            ("listen", "host"),
            "listening on another address than loopback lets everyone in who reaches it;"
            ' set listen.token = "file:PATH" too, or listen on 127.0.0.1',
        )
    target = urlsplit(merged.values["upstream", "url"])
    port = target.port or (443 if target.scheme == "https" else 80)
    if port == listen["port"] and is_loopback(target.hostname or ""):
        merged.fault(("upstream", "url"), "is the gateway's own address: it would call itself")
    ca_file = merged.values["upstream", "ca_file"]
    if ca_file is not None and not is_file(Path(ca_file)):
        merged.fault(("upstream", "ca_file"), f"there is no file {ca_file}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _gateway(merged: _Merged) -> GatewaySettings:
    # In the order of writing: the first pattern that fits a model wins.
    patterns = dict.fromkeys(
        key[2] for key in merged.values if key[:2] == ("upstream", "model_limits")
    )
    taken = merged.table("limits")
    return GatewaySettings(
        listen=ListenSettings(**merged.table("listen")),
        upstreams=(
            UpstreamSettings(
                **merged.table("upstream"),
                limits=KnownLimits(**merged.table("upstream", "limits")),
                model_limits={
                    pattern: KnownLimits(**merged.table("upstream", "model_limits", pattern))
                    for pattern in patterns
                },
            ),
        ),
        stream=StreamMode(merged.values["stream",]),
        hold=HoldSettings(**merged.table("hold")),
        caps=CapSettings(**merged.table("caps"), tags=merged.table("caps", "tags")),
        limits=LimitSettings(**{_TAKEN[name]: value for name, value in taken.items()}),
    )
