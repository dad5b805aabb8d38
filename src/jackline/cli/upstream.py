"""`jackline upstream`: where calls go, in the files and while the gateway runs.

Rules: (1) only `add` and `rm` change a file, and they show the change; (2) `use`, `back`, `pause`,
`drain`, `resume` and `probe` change nothing but the running gateway; (3) no credential is printed.
Not here: the file (upstream_file.py), the trial call (upstream_trial.py), the words
(upstream_report.py); all three are loaded only when a command needs them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from jackline.cli.arguments import upstream_names
from jackline.errors import (
    BadArgumentError,
    BadConfigError,
    NothingFoundError,
    UntrustedGatewayError,
)

if TYPE_CHECKING:
    from jackline.assembly import RunningGateway
    from jackline.cli.upstream_file import EditedConfigFile
    from jackline.cli.upstream_trial import TrialResult
    from jackline.config import Config
    from jackline.providers import UpstreamSettings


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def upstream() -> None:
    """Say where calls go: add, test and choose upstreams.

    The first upstream of the configuration is preferred, the others stand in for it. Presets and
    working examples: docs/upstreams.md.
    """


@upstream.command()
@click.argument("name")
@click.option("--preset", help="A known sort, such as openai, bedrock, vertex, openrouter, ollama.")
@click.option("--kind", help="anthropic, bedrock, vertex, openai-chat or openai-responses.")
@click.option("--url", help="Its address.")
@click.option("--credential", help="pass-through, none, env:NAME, file:PATH or cmd:COMMAND.")
@click.option("--auth", help="How the key is sent: api-key, bearer or vendor.")
@click.option("--region", help="Region of a cloud.")
@click.option("--project", help="Project at Google.")
@click.option("--model", "models", multiple=True, help="PATTERN=MODEL: what stands in for what.")
@click.option("--first", is_flag=True, help="Prefer it to all others.")
@click.option("--file", "named", type=click.Path(dir_okay=False), help="The file to edit.")
@click.option(
    "--user", "users", is_flag=True, help="Edit your own file, whatever JACKLINE_CONFIG says."
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
def add(
    name: str,
    models: tuple[str, ...],
    first: bool,
    named: str | None,
    users: bool,
    dry_run: bool,
    **given: str | None,
) -> None:
    """Add an upstream to the configuration, the last of them.

    Your own file is edited, or the one that JACKLINE_CONFIG names; a project's file only with
    --file, and it counts after `jackline trust`. Comments and order stay. Where none was listed,
    Anthropic is written down as the first, which it was by default.

    \b
    Examples:
      jackline upstream add gpt --preset openai --model 'claude-opus-*=gpt-5.5'
      jackline upstream add aws --preset bedrock --region us-east-1
      jackline upstream add team --url https://llm.example.com --credential env:TEAM_KEY

    Exit codes: 0 added, 2 it cannot work as described, and nothing is changed.
    """
    from jackline.cli.upstream_file import change, file_to_edit  # noqa: PLC0415 -- loads the validator
    from jackline.config.toml_writer import with_upstream  # noqa: PLC0415

    values: dict[str, Any] = {"name": name}
    values |= {key: value for key, value in given.items() if value is not None}
    if models:
        values["models"] = dict(_pair(text) for text in models)
    file = file_to_edit(named, users=users)
    text = file.text
    if not file.has_upstreams:
        text = with_upstream(text, {"preset": "anthropic"}, under=file.under)
    text = with_upstream(text, values, under=file.under, first=first)
    config = _checked(file, text)
    change(file, text, dry_run=dry_run)
    from jackline.cli.gateway_flags import show_warnings  # noqa: PLC0415 -- `--help` needs none

    show_warnings(config)
    if not dry_run:
        click.echo(f"next:  jackline upstream test {name}", err=True)


@upstream.command()
@click.argument("name", shell_complete=upstream_names)
@click.option("--file", "named", type=click.Path(dir_okay=False), help="The file to edit.")
@click.option(
    "--user", "users", is_flag=True, help="Edit your own file, whatever JACKLINE_CONFIG says."
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
def rm(name: str, named: str | None, users: bool, dry_run: bool) -> None:
    """Take an upstream out of the configuration, with the comment right above it.

    Exit codes: 0 taken out, 1 there is none of this name, 2 usage.
    """
    from jackline.cli.upstream_file import change, file_to_edit  # noqa: PLC0415 -- loads the validator
    from jackline.config.toml_writer import without_upstream  # noqa: PLC0415

    file = file_to_edit(named, users=users)
    known = file.config(file.text).gateway.upstreams if file.has_upstreams else ()
    names = [each.name for each in known]
    if name not in names:
        listed = ", ".join(names) or "none"
        raise NothingFoundError(
            f"{file.path} lists no upstream {name}",
            next=f"it lists: {listed}; name another file with --file",
        )
    text = without_upstream(file.text, names.index(name), under=file.under)
    left = file.config(text).gateway.upstream
    change(file, text, dry_run=dry_run)
    if len(names) == 1:
        click.echo(f"note:  no upstream is left, so calls go to {left.url}, the default", err=True)


@upstream.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def ls(as_json: bool) -> None:
    """List the upstreams in their order, and how their lanes stand if a gateway runs.

    Exit codes: 0 listed, 2 the configuration has faults.
    """
    from jackline.assembly import StateDir  # noqa: PLC0415 -- `--help` needs none of it
    from jackline.assembly.gateway_process import find, status_of  # noqa: PLC0415
    from jackline.cli.gateway_flags import configured  # noqa: PLC0415
    from jackline.cli.upstream_report import as_document, as_lines  # noqa: PLC0415

    config = configured({}, with_secrets=False)
    why = "no gateway runs"
    try:
        running = find(StateDir(config.state_dir), config.gateway.listen)
    except UntrustedGatewayError as error:
        running, why = None, error.message
    lanes = None
    if running is not None:
        told = status_of(running).get("lanes")
        lanes = [lane for lane in told if isinstance(lane, dict)] if isinstance(told, list) else []
    upstreams = config.gateway.upstreams
    if as_json:
        click.echo(json.dumps(as_document(upstreams, lanes), ensure_ascii=False, indent=2))
        return
    for line in as_lines(upstreams, lanes):
        click.echo(line)
    if running is None:
        click.echo(f"{why}, so nothing is known of their lanes", err=True)


@upstream.command()
@click.argument("name", shell_complete=upstream_names)
@click.option("--model", help="Ask for this model, or for what stands in for it there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def test(name: str, model: str | None, as_json: bool) -> int:
    """Make one real, cheap call to an upstream, and explain any failure.

    It asks a small model for one token. An upstream that gets the client's own credentials is tried
    with those of this shell: ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN or CLAUDE_CODE_OAUTH_TOKEN.

    Exit codes: 0 it answers, 4 a credential is refused, 5 it cannot be reached, 75 it refuses for
    now, 1 anything else, 2 usage.
    """
    from jackline import event_loop  # noqa: PLC0415 -- `--help` needs none of it
    from jackline.cli.gateway_flags import configured  # noqa: PLC0415
    from jackline.cli.upstream_trial import make_trial_call, model_to_try  # noqa: PLC0415
    from jackline.clock import SystemClock  # noqa: PLC0415
    from jackline.config.upstreams import with_secrets  # noqa: PLC0415

    upstreams = {each.name: each for each in configured({}, with_secrets=False).gateway.upstreams}
    if name not in upstreams:
        raise NothingFoundError(
            f"there is no upstream {name}", next=f"there are: {', '.join(upstreams)}"
        )
    now = SystemClock().now()
    known = upstreams[name]
    asked = model_to_try(known, model)
    tried = event_loop.run(make_trial_call(with_secrets(known, os.environ), asked, os.environ, now))
    _tell(known, tried, as_json=as_json)
    return tried.exit_code


@upstream.command()
@click.argument("name", required=False, shell_complete=upstream_names)
@click.option("--model", help="Only for models of this pattern.")
@click.option("--session", help="Only for this session.")
@click.option("--agent", help="Only for this sub-agent.")
@click.option("--for", "duration", help="For so long, such as 30m; else until told otherwise.")
@click.option("--clear", is_flag=True, help="End all such orders; the same as `back`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def use(
    name: str | None,
    duration: str | None,
    clear: bool,
    as_json: bool,
    **about: str | None,
) -> None:
    """Have the running gateway prefer an upstream, from the next attempt on.

    \b
    Examples:
      jackline upstream use aws --for 30m
      jackline upstream use gpt --model 'claude-opus-*'
      jackline upstream back

    Exit codes: 0 ordered, 2 the gateway refuses or usage, 5 no gateway runs.
    """
    if clear == (name is not None):
        raise BadArgumentError(
            "say which upstream to use, or --clear", next="jackline upstream use NAME"
        )
    if clear:
        _order("back", {"upstream": None}, as_json=as_json)
        return
    _order("use", {"upstream": name, **about, "seconds": _seconds(duration)}, as_json=as_json)


@upstream.command()
@click.argument("name", required=False, shell_complete=upstream_names)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def back(name: str | None, as_json: bool) -> None:
    """End what `use` ordered: for one upstream, or all of it.

    Exit codes: 0 ordered, 2 the gateway refuses, 5 no gateway runs.
    """
    _order("back", {"upstream": name}, as_json=as_json)


@upstream.command()
@click.argument("lane")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def pause(lane: str, as_json: bool) -> None:
    """Send nothing more on a lane, or on all that fit a pattern; its calls wait or go elsewhere.

    \b
    Example:
      jackline upstream pause 'anthropic/claude-opus-*'

    Exit codes: 0 ordered, 2 there is no such lane, 5 no gateway runs.
    """
    _order("pause", {"lane": lane}, as_json=as_json)


@upstream.command()
@click.argument("lane")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def drain(lane: str, as_json: bool) -> None:
    """Pause a lane, or all that fit a pattern, and wait until its last call in flight has ended.

    Other calls wait or go elsewhere, until `resume`. Ctrl-C ends the waiting, not the draining.

    \b
    Example:
      jackline upstream drain bedrock        before its key is changed

    Exit codes: 0 drained, 2 there is no such lane, 5 no gateway runs.
    """
    from jackline.cli.upstream_report import drain_lanes  # noqa: PLC0415 -- `--help` needs none of it

    told = drain_lanes(_gateway(), lane)
    if as_json:
        click.echo(json.dumps({"schema": "jackline.drained/1", **told}, indent=2))
        return
    for became, lanes in told.items():
        if lanes:
            click.echo(f"{became}: {', '.join(lanes)}")


@upstream.command()
@click.argument("lane")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def resume(lane: str, as_json: bool) -> None:
    """Let a paused lane, or all that fit a pattern, take calls again.

    Exit codes: 0 ordered, 2 there is no such lane, 5 no gateway runs.
    """
    _order("resume", {"lane": lane}, as_json=as_json)


@upstream.command()
@click.argument("lane")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def probe(lane: str, as_json: bool) -> None:
    """Ask a parked lane once, now: a wall may have gone before it was told to.

    LANE is a lane, a pattern, or the name of an upstream. On each lane that is parked or down
    one call goes out: one that waits, else the next that comes. If it is answered, the lane opens
    for all; if it meets the wall again, the lane stays parked as before.

    \b
    Example:
      jackline upstream probe anthropic       after you bought more

    Exit codes: 0 ordered, 2 there is no such lane, 5 no gateway runs.
    """
    from jackline.assembly.gateway_process import order  # noqa: PLC0415 -- `--help` needs none of it
    from jackline.cli.upstream_report import probe_words  # noqa: PLC0415

    probed = order(_gateway(), "probe", {"lane": lane}).get("probed")
    lanes = [each for each in probed if isinstance(each, dict)] if isinstance(probed, list) else []
    if as_json:
        click.echo(json.dumps({"schema": "jackline.probes/1", "probed": lanes}, indent=2))
        return
    click.echo(probe_words(lanes, lane))


def _checked(file: EditedConfigFile, text: str) -> Config:
    try:
        return file.config(text)
    except BadConfigError as error:
        raise BadConfigError(
            f"nothing is changed, since then {error.message}",
            next="add what is missing as an option, or correct what the file holds already",
            faults=error.faults,
        ) from error


def _pair(text: str) -> tuple[str, str]:
    pattern, mark, model = text.partition("=")
    if not mark or not pattern.strip() or not model.strip():
        raise BadArgumentError(
            f"--model {text} says not what stands in for what",
            next="write it like --model 'claude-opus-*=gpt-5.5'",
        )
    return pattern.strip(), model.strip()


def _seconds(duration: str | None) -> float | None:
    from jackline.config.field_types import read_duration  # noqa: PLC0415 -- `--help` needs none

    if duration is None:
        return None
    try:
        return read_duration(duration)
    except ValueError as error:
        raise BadArgumentError(f"--for: {error}", next="write it like --for 30m") from error


def _order(name: str, told: Mapping[str, object], *, as_json: bool) -> None:
    from jackline.assembly.gateway_process import order  # noqa: PLC0415 -- `--help` needs none of it
    from jackline.cli.upstream_report import order_words  # noqa: PLC0415

    answer = order(_gateway(), name, told)
    if as_json:
        document = {"schema": "jackline.upstream-orders/1", **answer}
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return
    lanes, orders = answer.get("lanes"), answer.get("orders")
    if isinstance(lanes, list):
        done = "paused" if answer.get("paused") else "resumed"
        click.echo(f"{done}: {', '.join(map(str, lanes))}")
    elif isinstance(orders, list):
        for each in orders:
            click.echo(order_words(each))
        if not orders:
            click.echo("calls go by the configuration")


def _gateway() -> RunningGateway:
    from jackline.assembly import StateDir  # noqa: PLC0415 -- `--help` needs none of it
    from jackline.assembly.gateway_process import find, not_running  # noqa: PLC0415
    from jackline.cli.gateway_flags import configured  # noqa: PLC0415

    config = configured({}, with_secrets=False)
    folder = StateDir(config.state_dir)
    running = find(folder, config.gateway.listen)
    if running is None:
        raise not_running(folder)
    return running


def _tell(known: UpstreamSettings, tried: TrialResult, *, as_json: bool) -> None:
    from jackline.cli.upstream_report import trial_document, trial_lines  # noqa: PLC0415 -- late

    if as_json:
        click.echo(json.dumps(trial_document(known, tried), ensure_ascii=False, indent=2))
        return
    for line in trial_lines(known, tried):
        click.echo(line)
