"""`jackline upstream`: where calls go, in the files and while the gateway runs.

Rules: (1) only `add` and `rm` change a file, and they show the change; (2) `use`, `back`, `pause`,
`drain`, `resume` and `probe` change nothing but the running gateway; (3) a credential is shown by
its kind and where it is stored, never by its value; (4) an order in force is shown with its calls
and its end; (5) a `drain` that is interrupted leaves the lanes draining, and does not wait for a
lane that somebody resumes meanwhile.
The file: upstream_file.py. The trial call: upstream_trial.py. Both load the validator or vendors,
so they are loaded only when a command needs them.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import click

from jackline import event_loop
from jackline.assembly import StateDir
from jackline.assembly.gateway_process import find, order, reading_of, status_of
from jackline.cli.arguments import upstream_names
from jackline.cli.gateway_flags import configured, running_gateway, show_warnings
from jackline.cli.status import dicts_in
from jackline.cli.terminal import say
from jackline.clock import SystemClock
from jackline.control.text import counted, limit_text, moment_text
from jackline.errors import (
    BadArgumentError,
    BadConfigError,
    UnreadableError,
    UntrustedGatewayError,
)
from jackline.failures.sentences import explain
from jackline.providers.settings import CostClass, Credential, UpstreamSettings

_CREDENTIAL_WORDS = {
    Credential.PASS_THROUGH: "the client's own credentials",
    Credential.NONE: "no credentials",
    Credential.VENDOR: "credentials of the vendor's own library",
}
_POLL_SECONDS = 0.5
_file = click.option("--file", "named", type=click.Path(dir_okay=False), help="The file to edit.")
_user = click.option(
    "--user", "users", is_flag=True, help="Edit your own file, whatever JACKLINE_CONFIG says."
)
_dry_run = click.option("--dry-run", is_flag=True, help="Only show what would change.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def upstream() -> None:
    """Configure where calls go: add, test and choose upstreams.

    The first upstream of the configuration is preferred, the others are its fallbacks. Presets and
    working examples: docs/upstreams.md.
    """


@upstream.command()
@click.argument("name")
@click.option(
    "--preset", help="A known provider, such as openai, bedrock, vertex, openrouter, ollama."
)
@click.option("--kind", help="anthropic, bedrock, vertex, openai-chat or openai-responses.")
@click.option("--url", help="Its address.")
@click.option("--credential", help="pass-through, none, env:NAME, file:PATH or cmd:COMMAND.")
@click.option("--auth", help="How the key is sent: api-key, bearer or vendor.")
@click.option("--region", help="Region of a cloud.")
@click.option("--project", help="Project at Google.")
@click.option(
    "--model",
    "models",
    multiple=True,
    help="PATTERN=MODEL: the model to use for what was requested.",
)
@click.option("--first", is_flag=True, help="Prefer it to all others.")
@_file
@_user
@_dry_run
def add(
    name: str,
    models: tuple[str, ...],
    first: bool,
    named: str | None,
    users: bool,
    dry_run: bool,
    **options: str | None,
) -> None:
    """Add an upstream to the configuration, after all others.

    The command edits your own file, or the one that JACKLINE_CONFIG names. It edits a project's
    file only with --file, and that counts after `jackline trust`. Comments and order stay. If no
    upstream was listed, Anthropic is added first, because it was the default.

    \b
    Examples:
      jackline upstream add gpt --preset openai --model 'claude-opus-*=gpt-5.5'
      jackline upstream add aws --preset bedrock --region us-east-1
      jackline upstream add team --url https://llm.example --credential env:KEY

    Exit codes: 0 added, 2 it cannot work like this, and nothing is changed.
    """
    if options["url"] is None and options["preset"] is None:
        raise BadArgumentError(
            f"nothing says where calls to {name} go: --url or --preset is missing",
            hint=f"jackline upstream add {shlex.quote(name)} --preset openai, or --url https://…",
        )
    from jackline.cli.upstream_file import EditedConfigFile  # noqa: PLC0415 -- loads the validator
    from jackline.config.toml_writer import with_upstream  # noqa: PLC0415

    values: dict[str, Any] = {"name": name}
    values |= {key: value for key, value in options.items() if value is not None}
    for text in models:
        pattern, mark, model = (part.strip() for part in text.partition("="))
        if not mark or not pattern or not model:
            raise BadArgumentError(
                f"--model {text} is not of the form PATTERN=MODEL",
                hint="write it like --model 'claude-opus-*=gpt-5.5'",
            )
        values.setdefault("models", {})[pattern] = model
    file = EditedConfigFile.find(named, users=users)
    text = file.text
    if not file.has_upstreams:
        text = with_upstream(text, {"preset": "anthropic"}, under=file.under)
    text = with_upstream(text, values, under=file.under, first=first)
    try:
        config = file.config(text)
    except BadConfigError as error:
        raise BadConfigError(
            f"nothing is changed, because then {error.message}",
            hint="add what is missing as an option, or correct the file",
            faults=error.faults,
        ) from error
    file.change(text, dry_run=dry_run)
    show_warnings(config)
    if not dry_run:
        say(f"next:  jackline upstream test {name}", err=True)


@upstream.command()
@click.argument("name", shell_complete=upstream_names)
@_file
@_user
@_dry_run
def rm(name: str, named: str | None, users: bool, dry_run: bool) -> None:
    """Remove an upstream from the configuration, with the comment right above it.

    Exit codes: 0 removed, 2 there is none of this name.
    """
    from jackline.cli.upstream_file import EditedConfigFile  # noqa: PLC0415 -- loads the validator
    from jackline.config.toml_writer import without_upstream  # noqa: PLC0415

    file = EditedConfigFile.find(named, users=users)
    known = file.config(file.text).gateway.upstreams if file.has_upstreams else ()
    names = [each.name for each in known]
    if name not in names:
        listed = ", ".join(names) or "none"
        raise UnreadableError(
            f"{file.path} lists no upstream {name}",
            hint=f"it lists: {listed}; name another file with --file",
        )
    text = without_upstream(file.text, names.index(name), under=file.under)
    left = file.config(text).gateway.upstream
    file.change(text, dry_run=dry_run)
    if len(names) == 1:
        say(f"note:  no upstream is left, so calls go to {left.url}, the default", err=True)


@upstream.command()
@_as_json
def ls(as_json: bool) -> None:
    """List the upstreams in their order, with their lanes if a gateway runs.

    Exit codes: 0 listed, 2 the configuration has faults.
    """
    config = configured({}, with_secrets=False)
    why = "no gateway runs"
    try:
        running = find(StateDir(config.state_dir), config.gateway.listen)
    except UntrustedGatewayError as error:
        running, why = None, error.message
    lanes = [] if running is None else dicts_in(status_of(running), "lanes")
    upstreams = config.gateway.upstreams
    lanes_of = {
        each.name: [lane for lane in lanes if lane.get("upstream") == each.name]
        for each in upstreams
    }
    if as_json:
        document = {
            "schema": "jackline.upstreams/1",
            "gateway": running is not None,
            "upstreams": [
                {
                    "name": each.name,
                    "kind": each.kind.value,
                    "url": each.url,
                    "host": urlsplit(each.url).hostname,
                    "credential": each.credential.value,
                    "secret": each.secret,
                    "models": dict(each.models),
                    "region": each.region,
                    "project": each.project,
                    "admin_key": each.admin_key,
                    "workspace": each.workspace,
                    "cost_class": each.cost_class.value,
                    "lanes": None if running is None else lanes_of[each.name],
                }
                for each in upstreams
            ],
        }
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return
    for number, each in enumerate(upstreams, 1):
        for line in _upstream_lines(number, each, lanes_of[each.name]):
            say(line)
    if running is None:
        say(f"{why}, so the state of their lanes is not known", err=True)


def _upstream_lines(
    number: int, upstream: UpstreamSettings, lanes: Sequence[dict[str, object]]
) -> Iterator[str]:
    cost = "" if upstream.cost_class is CostClass.USUAL else f", cost {upstream.cost_class}"
    address = f"{upstream.kind} at {_address(upstream)}"
    yield f"{number}. {upstream.name}: {address}, {_credential(upstream)}{cost}"
    for pattern, model in upstream.models.items():
        yield f"     {pattern} → {model}"
    if upstream.admin_key is not None:
        yield f"     limits are read from its vendor with the key in {upstream.admin_key}"
    for lane in lanes:
        why = f"; {lane['why']}" if lane.get("why") else ""
        figures = f"{lane['in_flight']} of {lane['window']} in flight"
        yield f"     lane {lane['name']}: {lane['state']}, {figures}{why}"
        if limits := limit_text(lane, SystemClock().now()):
            yield f"       limits: {limits}"


def _credential(upstream: UpstreamSettings) -> str:
    """Whose credentials go there; of a key of its own, where it is stored."""
    words = _CREDENTIAL_WORDS.get(upstream.credential)
    return words or f"{upstream.credential} from {upstream.secret}"


def _address(upstream: UpstreamSettings) -> str:
    """The address without the scheme, where that is https."""
    parts = urlsplit(upstream.url)
    secure = "" if parts.scheme == "https" else f"{parts.scheme}://"
    return f"{secure}{parts.netloc}{parts.path}"


@upstream.command()
@click.argument("name", shell_complete=upstream_names)
@click.option("--model", help="Request this model, or the one that replaces it there.")
@_as_json
def test(name: str, model: str | None, as_json: bool) -> int:
    """Make one real, cheap call to an upstream, and explain any failure.

    It requests one token from a small model. An upstream that gets the client's own credentials is
    tried with those of this shell: ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN or
    CLAUDE_CODE_OAUTH_TOKEN.

    Exit codes: 0 it answers, 4 a credential is refused, 5 it cannot be reached, 75 it refuses for
    now, 1 anything else, 2 usage.
    """
    from jackline.cli.upstream_trial import (  # noqa: PLC0415 -- loads the vendors
        make_trial_call,
        model_to_try,
    )
    from jackline.config.upstreams import with_secrets  # noqa: PLC0415

    upstreams = {each.name: each for each in configured({}, with_secrets=False).gateway.upstreams}
    if name not in upstreams:
        raise UnreadableError(
            f"there is no upstream {name}", hint=f"there are: {', '.join(upstreams)}"
        )
    now = SystemClock().now()
    known = upstreams[name]
    call = make_trial_call(
        with_secrets(known, os.environ), model_to_try(known, model), os.environ, now
    )
    result = event_loop.run(call)
    failure = result.failure
    reason = "" if failure is None else " ".join(explain(failure, SystemClock().now()))
    hint = result.hint(name, _credential(known))
    if as_json:
        document = {
            "schema": "jackline.upstream-test/1",
            "upstream": name,
            "url": known.url,
            "model": result.model,
            "good": failure is None,
            "status": result.status,
            "seconds": round(result.seconds, 3),
            "failure": None if failure is None else failure.to_json(),
            "explanation": reason or None,
            "hint": hint or None,
        }
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    elif failure is None:
        say(f"good: {name} answers as {result.model}, after {result.seconds:.1f} s")
    else:
        no_answer = result.status is None
        answer = "does not answer" if no_answer else f"answers with status {result.status}"
        say(f"bad:   {name} ({_address(known)}, {result.model}) {answer}")
        say(reason)
        say(f"hint:  {hint}")
    return result.exit_code


@upstream.command()
@click.argument("name", required=False, shell_complete=upstream_names)
@click.option("--model", help="Only for models of this pattern.")
@click.option("--session", help="Only for this session.")
@click.option("--agent", help="Only for this sub-agent.")
@click.option("--for", "duration", help="How long, such as 30m; else until `back`.")
@click.option("--clear", is_flag=True, help="End all such orders; the same as `back`.")
@_as_json
def use(
    name: str | None, duration: str | None, clear: bool, as_json: bool, **about: str | None
) -> None:
    """Let the running gateway prefer an upstream, from the next attempt on.

    \b
    Examples:
      jackline upstream use aws --for 30m
      jackline upstream use gpt --model 'claude-opus-*'
      jackline upstream back

    Exit codes: 0 ordered, 2 the gateway refuses or usage, 5 no gateway runs.
    """
    if clear == (name is not None):
        raise BadArgumentError(
            "name the upstream to use, or --clear", hint="jackline upstream use NAME"
        )
    if clear:
        _order("back", {"upstream": None}, as_json=as_json)
        return
    from jackline.config.field_types import read_duration  # noqa: PLC0415 -- loads the validator

    try:
        seconds = None if duration is None else read_duration(duration)
    except ValueError as error:
        raise BadArgumentError(f"--for: {error}", hint="write it like --for 30m") from error
    _order("use", {"upstream": name, **about, "seconds": seconds}, as_json=as_json)


@upstream.command()
@click.argument("name", required=False, shell_complete=upstream_names)
@_as_json
def back(name: str | None, as_json: bool) -> None:
    """Withdraw the orders of `use`: for one upstream, or all of them.

    Exit codes: 0 ordered, 2 the gateway refuses, 5 no gateway runs.
    """
    _order("back", {"upstream": name}, as_json=as_json)


@upstream.command()
@click.argument("lane")
@_as_json
def pause(lane: str, as_json: bool) -> None:
    """Send nothing more on a lane, or on all that fit a pattern; its calls wait or use other lanes.

    \b
    Example:
      jackline upstream pause 'anthropic/claude-opus-*'

    Exit codes: 0 ordered, 2 there is no such lane, 5 no gateway runs.
    """
    _order("pause", {"lane": lane}, as_json=as_json)


@upstream.command()
@click.argument("lane")
@_as_json
def drain(lane: str, as_json: bool) -> None:
    """Pause a lane, or all that fit a pattern, and wait until its last call in flight has ended.

    Other calls wait or use other lanes, until `resume`. Ctrl-C ends the waiting, not the draining.

    \b
    Example:
      jackline upstream drain bedrock        before its key is changed

    Exit codes: 0 drained, 2 there is no such lane, 5 no gateway runs.
    """
    running = running_gateway({})
    answer = order(running, "drain", {"lane": lane})
    in_flight = cast("Mapping[str, int]", answer["in_flight"])
    left = sum(in_flight.values())
    if left:
        text = f"draining: {', '.join(in_flight)}, {counted(left, 'call')} in flight"
        say(f"{text}; Ctrl-C ends the waiting, not the draining", err=True)
    resumed: set[str] = set()
    while left:
        time.sleep(_POLL_SECONDS)
        lanes = cast("list[dict[str, Any]]", reading_of(running, "fleet")["lanes"])
        lanes = [each for each in lanes if each["name"] in in_flight]
        resumed = {each["name"] for each in lanes if not each["paused"]}
        left = sum(each["in_flight"] for each in lanes if each["paused"])
    result = {"drained": sorted(set(in_flight) - resumed), "resumed": sorted(resumed)}
    if as_json:
        click.echo(json.dumps({"schema": "jackline.drained/1", **result}, indent=2))
        return
    for state, names in result.items():
        if names:
            say(f"{state}: {', '.join(names)}")


@upstream.command()
@click.argument("lane")
@_as_json
def resume(lane: str, as_json: bool) -> None:
    """Let a paused lane, or all that fit a pattern, take calls again.

    Exit codes: 0 ordered, 2 there is no such lane, 5 no gateway runs.
    """
    _order("resume", {"lane": lane}, as_json=as_json)


@upstream.command()
@click.argument("lane")
@_as_json
def probe(lane: str, as_json: bool) -> None:
    """Send one call on a parked lane now: its quota wall may be gone before the reported reset.

    LANE is a lane, a pattern, or the name of an upstream. One call is sent on each lane that is
    parked or down: one that waits, else the next one. If it is answered, the lane opens for all;
    if it hits the wall again, the lane stays parked as before.

    \b
    Example:
      jackline upstream probe anthropic       after you bought more

    Exit codes: 0 ordered, 2 there is no such lane, 5 no gateway runs.
    """
    answer = order(running_gateway({}), "probe", {"lane": lane})
    lanes = dicts_in(answer, "probed")
    if as_json:
        click.echo(json.dumps({"schema": "jackline.probes/1", "probed": lanes}, indent=2))
        return
    if not lanes:
        say(f"{lane} is not parked: its calls are sent as usual")
        return
    waiting = [str(each["lane"]) for each in lanes if not each["sent"]]
    sent = [str(each["lane"]) for each in lanes if each["sent"]]
    parts = [f"one call was sent on {', '.join(sent)}"] if sent else []
    parts += [f"the next call on {', '.join(waiting)} is sent"] if waiting else []
    say(f"{', and '.join(parts)}: if it is answered, the lane is open again")


def _order(name: str, arguments: Mapping[str, object], *, as_json: bool) -> None:
    """Send an order to the running gateway, and print its answer."""
    answer = order(running_gateway({}), name, arguments)
    if as_json:
        document = {"schema": "jackline.upstream-orders/1", **answer}
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return
    lanes, orders = answer.get("lanes"), answer.get("orders")
    if isinstance(lanes, list):
        done = "paused" if answer.get("paused") else "resumed"
        say(f"{done}: {', '.join(map(str, lanes)) or arguments['lane']}")
        still = ", ".join(map(str, cast("list[str]", answer.get("names") or ())))
        if still and not answer.get("paused"):
            say(f"still paused, with lanes to come: {still}")
    elif isinstance(orders, list):
        if not orders:
            say("calls are sent as the configuration says")
        names = (("model", "models"), ("session", "session"), ("agent", "agent"))
        now = SystemClock().now()
        for each in orders:
            about = [f"{noun} {each[name]}" for name, noun in names if each.get(name)]
            calls = f"calls of {', '.join(about)}" if about else "all calls"
            end = "until `jackline upstream back`"
            if isinstance(until := each.get("until"), int | float):
                end = f"until {moment_text(until, now)}"
            say(f"{calls} go to {each.get('upstream')} where they can, {end}")
