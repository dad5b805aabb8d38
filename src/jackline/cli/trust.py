"""`jackline trust`: show a project's file, and agree to where it would send calls.

Rules: (1) the text that is shown is the text that is agreed to: a file that changes meanwhile is
not agreed to; (2) nothing is agreed to without a person's yes or --yes; (3) texts of the file are
shown in plain ASCII, and where calls, credentials and proxies go is repeated at the end, so that
none can hide another; (4) no secret is looked up; (5) every setting of an upstream is shown, and
that a key of the user's own, set by a variable, would go to the project's host.
What an agreement allows, and how it is recorded: config/project.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from jackline.cli.terminal import say
from jackline.config import HomeFolders, load
from jackline.config.files import (
    FILE_NAME,
    PROJECT_FILE,
    FileText,
    UnusableFileError,
    find_project_file,
    is_file,
    read_named,
)
from jackline.config.project import ConsentRecord, plain_ascii
from jackline.config.references import is_reference
from jackline.errors import (
    BadArgumentError,
    JacklineError,
    NothingFoundError,
    UnreadableError,
    UsageError,
)
from jackline.outside_names import printable
from jackline.private_files import NotPrivateError, quoted

if TYPE_CHECKING:
    from jackline.config.loader import Preview
    from jackline.lanes import KnownLimits
    from jackline.providers.settings import UpstreamSettings

# Of a reference to a secret, in the summary; hosts are never cut, since their ends matter.
_LONGEST_REFERENCE = 100
_CACHED_FOR = {
    "client": "as long as the client requests",
    "1h": "an hour, at a higher price",
    "auto": "an hour, at a higher price, where long pauses are likely",
}
# Variables of the user for the first upstream, whichever file lists it.
_OWN_PREFIX = "JACKLINE_UPSTREAM_"
_OWN_KEY = "JACKLINE_UPSTREAM_CREDENTIAL"
_CREDENTIALS = {
    "pass-through": "the key or login that each client sends",
    "none": "none",
    "vendor": "what the cloud's own library finds on this machine",
}


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Agree without asking.")
@click.option("--dry-run", is_flag=True, help="Only show what the file would change.")
@click.option("--list", "listing", is_flag=True, help="List the files that you agreed to.")
@click.option("--revoke", is_flag=True, help="Withdraw an agreement.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document; never asks.")
def trust(
    path: Path | None, yes: bool, dry_run: bool, listing: bool, revoke: bool, as_json: bool
) -> int:
    """Agree to the upstreams that a project's jackline.toml or pyproject.toml lists.

    A project's file may come from a stranger, so its upstreams are used only after you have
    agreed to exactly its content; once it changes, you are asked again. PATH is the file or its
    folder, by default the nearest one. What such a file may set without asking, and what it never
    may: docs/configuration.md.

    \b
    Examples:
      jackline trust
      jackline trust ~/work/app/jackline.toml --dry-run
      jackline trust --revoke ~/work/app/jackline.toml

    Exit codes: 0 agreed, or nothing to agree to; 1 not agreed, or nothing found; 2 it cannot be
    agreed to, or nobody can be asked.
    """
    from jackline.config.loader import preview  # noqa: PLC0415 -- loads the validator

    folders = HomeFolders.of_this_user()
    if listing:
        _print_agreements(folders, as_json=as_json)
        return 0
    if revoke:
        _revoke(path, folders)
        return 0
    file = _find_file(path, folders)
    shown = preview(file, folders)
    has_problem = bool(shown.ignored.refused or shown.faults)
    is_possible = bool(shown.upstreams) and not has_problem
    asks = is_possible and shown.consent.value != "agreed"
    if as_json:
        agrees = asks and yes and not dry_run
        if agrees:
            with _consent_record(folders) as record:
                record.agree(file, time.time())
        click.echo(json.dumps(_document(file, shown, agreed=agrees), indent=2))
        return UsageError.exit_code if has_problem else 0
    _show(file, shown, folders)
    if has_problem and not dry_run:
        raise UsageError(
            f"{printable(str(file.path))} cannot be agreed to as it is",
            hint="correct what is named above, or put it into your own file:"
            f" {folders.config / FILE_NAME}",
        )
    if asks and dry_run:
        say("nothing is recorded (--dry-run)", err=True)
    elif asks:
        return _ask(file, folders, yes=yes)
    elif not dry_run and is_possible:
        say("you have agreed to exactly this already", err=True)
    elif not shown.upstreams and not has_problem:
        say("it lists no upstreams, so there is nothing to agree to", err=True)
    return 0


def _ask(file: FileText, folders: HomeFolders, *, yes: bool) -> int:
    """Record the agreement if a person confirms it; returns the exit code."""
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise BadArgumentError(
                "nobody can be asked here: this is no terminal",
                hint=f"once you have read it: jackline trust {quoted(str(file.path))} --yes",
            )
        if not click.confirm("Do you want calls to go there?", default=False, err=True):
            say("not agreed: its upstreams stay ignored", err=True)
            return 1
    with _consent_record(folders) as record:
        record.agree(file, time.time())
    click.echo(
        f"agreed: {printable(str(file.path))}; a gateway that runs there uses it from now on\n"
        f"next:  to withdraw it: jackline trust --revoke {quoted(str(file.path))}",
        err=True,
    )
    return 0


def _revoke(path: Path | None, folders: HomeFolders) -> None:
    wanted = Path.cwd() if path is None else path
    # The file may be gone already.
    tried = [wanted / FILE_NAME, wanted / PROJECT_FILE] if wanted.is_dir() else [wanted]
    with _consent_record(folders) as record:
        done = [each for each in tried if record.revoke(each)]
    if not done:
        raise UnreadableError(
            f"you have not agreed to {printable(str(wanted))}",
            hint="jackline trust --list shows what you agreed to",
        )
    for each in done:
        click.echo(
            f"withdrawn: {printable(str(each))}; its upstreams are ignored from now on", err=True
        )


@contextmanager
def _consent_record(folders: HomeFolders) -> Iterator[ConsentRecord]:
    """The record of agreements; UsageError where it cannot be changed."""
    try:
        yield ConsentRecord(folders.state)
    except OSError as error:
        fix = error.fix if isinstance(error, NotPrivateError) else "make it writable for you"
        raise UsageError(f"{error.filename}: {error.strerror}", hint=fix) from error


def _print_agreements(folders: HomeFolders, *, as_json: bool) -> None:
    entries: list[dict[str, object]] = []
    record = ConsentRecord(folders.state)
    for each in record.entries():
        try:
            file = read_named(Path(each.path), of_project=True)
        except UnusableFileError:
            file = None
        now = "gone" if file is None else record.status(file).value
        at = datetime.fromtimestamp(each.at, UTC).isoformat(timespec="seconds")
        entries.append({"path": each.path, "sha256": each.sha256, "at": at, "now": now})
    if as_json:
        click.echo(json.dumps({"schema": "jackline.trusted/1", "projects": entries}, indent=2))
        return
    for entry in entries:
        say(f"{printable(str(entry['path']))}  {entry['now']}, agreed to at {entry['at']}")
    if not entries:
        say("you have agreed to no project's file", err=True)


def _find_file(path: Path | None, folders: HomeFolders) -> FileText:
    own = folders.config / FILE_NAME
    if path is None:
        warnings: list[str] = []
        found = find_project_file(Path.cwd(), own, warnings)
        if found is None and warnings:
            raise UsageError(warnings[-1], hint="correct it, or name another: jackline trust PATH")
        if found is None:
            raise NothingFoundError(
                "there is no project's file with settings of Jackline here",
                hint="name it: jackline trust PATH",
            )
        return found
    tried = [path / FILE_NAME, path / PROJECT_FILE] if path.is_dir() else [path]
    for each in tried:
        if path.is_dir() and not is_file(each):
            continue
        if each.exists() and own.exists() and each.samefile(own):
            raise BadArgumentError(
                f"{own} is your own file: it is used without any agreement",
                hint="jackline config show --origin",
            )
        try:
            file = read_named(each.absolute(), of_project=True)
        except UnusableFileError as error:
            raise UsageError(
                f"{printable(str(each))} {error.what}", hint="correct it, or name another file"
            ) from error
        if file is not None:
            return file
    raise NothingFoundError(
        f"{printable(str(path))} has no settings of Jackline",
        hint="name the file: jackline trust PATH",
    )


def _show(file: FileText, shown: Preview, folders: HomeFolders) -> None:
    name = plain_ascii(str(file.path))
    if shown.upstreams:
        say(f"{name} would send calls here, in this order:")
        for number, upstream in enumerate(shown.upstreams, 1):
            head, *lines = map(plain_ascii, _upstream_lines(upstream))
            click.echo("\n       ".join([f"  {number}. {head}", *lines]))
        own_file = folders.config / FILE_NAME
        flags = {"config": own_file} if own_file.is_file() else {}
        with suppress(JacklineError):  # the faults of the own file are reported where it is used
            own = load(flags=flags, environ={}, cwd=Path("/"), folders=folders, with_secrets=False)
            before = ", then ".join(f"{each.name} ({each.url})" for each in own.gateway.upstreams)
            say(f"  instead of: {before}")
        say("  and with the calls everything in them: prompts, files, answers of tools.")
        if variables := sorted(name for name in os.environ if name.startswith(_OWN_PREFIX)):
            listed = plain_ascii(", ".join(variables))
            say(f"  Your variables are applied to the first of them: {listed}")
    else:
        say(f"{name} would not change where calls go.")
    for text, names in (
        ("It sets without an agreement", shown.free),
        ("It may never set, so ignored", shown.ignored.closed),
        ("Not stricter than your own, so ignored", shown.ignored.looser),
        ("Too long a list, so ignored", shown.ignored.too_long),
        ("Without a known price under your limit in dollars, so ignored", shown.ignored.unpriced),
    ):
        if names:
            say(f"{text}: {plain_ascii(', '.join(names))}")
    for refused in shown.ignored.refused:
        say(f"refused: {refused}")
    for fault in shown.faults:
        say(f"fault: {plain_ascii(fault)}")
    if shown.upstreams:
        _show_summary(shown.upstreams)


def _show_summary(upstreams: Sequence[UpstreamSettings]) -> None:
    """Where things would go, in the last lines: the first may have scrolled off the screen."""

    def show(what: str, texts: Iterable[str]) -> None:
        say(f"  {what}: {plain_ascii(', '.join(dict.fromkeys(texts)))}")

    many = "1 upstream" if len(upstreams) == 1 else f"{len(upstreams)} upstreams"
    say(f"In short, {many}:")
    headers = [text for each in upstreams for text in each.headers.values() if is_reference(text)]
    sent = [*(_credential(each) for each in upstreams), *(f"what {text} holds" for text in headers)]
    show("credentials", (text[:_LONGEST_REFERENCE] for text in sent))
    proxies = [each.proxy for each in upstreams if each.proxy is not None]
    if proxies:
        show("through proxies", (urlsplit(text).hostname or text for text in proxies))
    show("calls go to", (_host(each.url) for each in upstreams))
    if _OWN_KEY in os.environ:
        show(f"YOUR OWN KEY ({_OWN_KEY}) would go to", [_host(upstreams[0].url)])


def _upstream_lines(upstream: UpstreamSettings) -> list[str]:
    """Every setting of one upstream, one per line."""
    url = upstream.url or f"the cloud's address in {upstream.region}"
    optional = (
        ("proxy on the way", upstream.proxy),
        *(
            (f"header {name}", f"what {value} holds" if is_reference(value) else value)
            for name, value in sorted(upstream.headers.items())
        ),
        ("status page read for incidents", upstream.status_page),
        ("region", upstream.region),
        ("project that pays", upstream.project),
        ("trusted certificates", upstream.ca_file),
    )
    lines = [
        f"{upstream.name} ({upstream.kind.value}): {url}",
        f"host: {_host(upstream.url)}",
        f"credential: {_credential(upstream)}",
        *(f"{text}: {value}" for text, value in optional if value is not None),
        *(f"answers for {requested}: {model}" for requested, model in upstream.models.items()),
        f"cost class: {upstream.cost_class.value} (the cheaper is preferred)",
        *(f"at most {limit}" for limit in _limits(upstream.limits)),
    ]
    for models, limits in upstream.model_limits.items():
        lines += [f"at most {limit}, for {models}" for limit in _limits(limits)]
    if upstream.local:
        lines.append("a server of your own: waited for longer, and no call is sent to it twice")
    if upstream.longest_answer is not None:
        lines.append(f"tokens of an answer at most: {upstream.longest_answer}")
    if upstream.cache_ttl is not None:
        lines.append(f"prompts are cached for: {_CACHED_FOR[upstream.cache_ttl.value]}")
    if upstream.counts_cached is not None:
        counts = "count" if upstream.counts_cached else "do not count"
        lines.append(f"tokens read from a prompt cache {counts} toward its limits")
    if upstream.accept_rejected_clients:
        lines.append("serves clients without a credential, or with one that was refused, too")
    if upstream.admin_key is not None:
        lines.append(f"rate limits are read with what {upstream.admin_key} holds")
    if upstream.workspace is not None:
        lines.append(f"workspace whose rate limits are read: {upstream.workspace}")
    return lines


def _limits(limits: KnownLimits) -> list[str]:
    known = ((each.name, getattr(limits, each.name)) for each in fields(limits))
    return [f"{value:g} {name.replace('_', ' ')}" for name, value in known if value is not None]


def _host(url: str | None) -> str:
    return urlsplit(url or "").hostname or "the vendor decides"


def _credential(upstream: UpstreamSettings) -> str:
    kind = upstream.credential.value
    return _CREDENTIALS.get(kind, f"what {upstream.secret} holds ({kind})")


def _document(file: FileText, shown: Preview, *, agreed: bool) -> dict[str, object]:
    return {
        "schema": "jackline.trust/1",
        "path": str(file.path),
        "sha256": file.digest,
        "consent": "agreed" if agreed else shown.consent.value,
        "upstreams": [
            {
                "name": each.name,
                "kind": each.kind.value,
                "url": each.url,
                "host": urlsplit(each.url or "").hostname,
                "credential": each.secret or each.credential.value,
                "proxy": each.proxy,
                "headers": dict(each.headers),
                "status_page": each.status_page,
                "models": dict(each.models),
                "region": each.region,
                "project": each.project,
                "ca_file": each.ca_file,
                "cost_class": each.cost_class.value,
                "limits": asdict(each.limits),
                "model_limits": {name: asdict(some) for name, some in each.model_limits.items()},
                "longest_answer": each.longest_answer,
                "cache_ttl": each.cache_ttl,
                "counts_cached": each.counts_cached,
                "local": each.local,
                "accept_rejected_clients": each.accept_rejected_clients,
                "admin_key": each.admin_key,
                "workspace": each.workspace,
            }
            for each in shown.upstreams
        ],
        "own_variables": sorted(name for name in os.environ if name.startswith(_OWN_PREFIX)),
        "free": list(shown.free),
        "closed": list(shown.ignored.closed),
        "looser": list(shown.ignored.looser),
        "too_long": list(shown.ignored.too_long),
        "unpriced": list(shown.ignored.unpriced),
        "refused": list(shown.ignored.refused),
        "faults": list(shown.faults),
    }
