"""`jackline why`: find in transcripts what stopped agents, or explain the text of one error.

Rules: (1) stdout holds the answer, stderr the progress; (2) exit 0 with a cause found, 1 without, 2
for usage, 3 for bad lines of --jsonl; (3) colour and progress only on a terminal; (4) what
names a file or one id is never read as the text of an error.
What one error means: one_error.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from jackline.autopsy import report, text_report
from jackline.autopsy.figures import size
from jackline.autopsy.text_report import Tone
from jackline.cli.arguments import parse_age, parse_now_option
from jackline.cli.one_error import OneError, is_text_of_error
from jackline.clock import Clock, SystemClock
from jackline.errors import BadArgumentError, UnreadableError
from jackline.events import Event, TranscriptsRead
from jackline.transcripts import reader, sources
from jackline.transcripts.sources import ClientFolders

if TYPE_CHECKING:
    from jackline.transcripts.story import TranscriptSet

_WIDEST = 100
_PROGRESS_SECONDS = 0.7
_STYLES: dict[Tone, dict[str, object]] = {
    Tone.VERDICT: {"bold": True},
    Tone.HEADING: {"bold": True},
    Tone.WRONG: {"fg": "red"},
    Tone.COMMAND: {"fg": "cyan"},
    Tone.QUIET: {"dim": True},
}


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--since", metavar="AGE", help="One table over all sessions of the last 24h, 7d, 2w.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (jackline.why/2).")
@click.option(
    "--html", "html_file", metavar="FILE", help="Write a self-contained page with timeline."
)
@click.option(
    "--show-content", is_flag=True, help="Also show prompts and answers; hidden otherwise."
)
@click.option("--demo", is_flag=True, help="Explain a synthetic replica of a real incident.")
@click.option(
    "--text", metavar="TEXT", help="Explain this error, from any provider; - reads it from stdin."
)
@click.option("--status", type=click.IntRange(100, 599), help="The HTTP status beside the text.")
@click.option(
    "--header", "-H", multiple=True, metavar="'NAME: VALUE'", help="A response header beside it."
)
@click.option("--jsonl", is_flag=True, help="Explain stdin: one observation per line.")
@click.option("--now", metavar="ISO", help="Use this as the current time; for tests and old logs.")
def why(
    targets: tuple[str, ...],
    since: str | None,
    as_json: bool,
    html_file: str | None,
    show_content: bool,
    demo: bool,
    now: str | None,
    **one: Any,
) -> int:
    """Find what stopped agents, or explain one error.

    TARGET is a session, run or agent id (its beginning is enough), a transcript, a log of
    `claude -p --output-format stream-json`, a Codex rollout, or a folder of such files. Without
    TARGET it is the newest session on this machine.

    \b
    Examples:
      jackline why                        the newest session
      jackline why --since 7d             the week in one table: who died of what
      jackline why --text "You've hit your session limit · resets 10:10pm"
      curl -si https://… | jackline why   what this answer means
      jackline why --jsonl < observations.jsonl

    The first line is the verdict. Then, for each cause: when and how often it was met, whether
    anything waited, what was spent in vain, what was reported vs. what happened, which agents
    finished and where their results are, and how to resume the others. The gateway's journal adds
    the calls that waited while their prompt caches lapsed. Token counts are lower bounds. Prompts,
    answers and tool output stay hidden without --show-content.

    With --text, with text on stdin, or with one TARGET that is neither an id nor a path, the
    command says what this error means, whose fault it is, what helps, and until when. The text is a
    message, a JSON error or `curl -i` output; --status and --header add what was seen beside it.

    With --jsonl each line of stdin is an object with the fields where (http, sse, exception,
    transcript, cli_text, statuspage), provider, status, headers, body, text; each answer has kind,
    sub, scope, retry_same, failover_helps, retry_after_s, resets_at. A bad line is answered by an
    object with the key error, and the exit code is 3.

    Exit codes: 0 a cause was found, 1 none was found, 2 usage, 3 bad lines in --jsonl, 130
    interrupted.
    """
    clock = SystemClock()
    moment = parse_now_option(now, clock)
    about_agents = since is not None or html_file is not None or show_content or demo
    error = OneError(**one, as_json=as_json)
    if error.is_asked_for(targets, about_agents=about_agents):
        return error.explain(targets, moment)
    if demo:
        if targets:
            raise BadArgumentError("--demo brings its own transcripts", hint="jackline why --demo")
        evidence, moment = _demo()
    else:
        begin = None if since is None else moment - parse_age(since, "--since")
        try:
            evidence = _read(targets, begin, clock)
        except UnreadableError:
            if len(targets) != 1 or about_agents or not is_text_of_error(targets[0], moment):
                raise
            return error.explain(targets, moment)
        if begin is not None and html_file is None:
            return _show_period(evidence, begin, moment, as_json=as_json)
    waits = []
    if not demo:
        from jackline.cli.journal_views import read_lapsed_waits  # noqa: PLC0415 -- rarely needed

        waits = read_lapsed_waits(evidence, moment)
    found = report.build(
        evidence, now=moment, show_content=show_content, synthetic=demo, waits=waits
    )
    _show(found, as_json=as_json, html_file=html_file)
    return 0 if found.causes else 1


def _read(targets: Sequence[str], begin: datetime | None, clock: Clock) -> TranscriptSet:
    stores = ClientFolders.of(Path.home(), os.environ)
    found_files = sources.find(targets, stores=stores, since=begin)
    progress = _Progress(clock)
    try:
        return reader.read(found_files, announce=progress.show)
    finally:
        progress.clear()


def _demo() -> tuple[TranscriptSet, datetime]:
    import tempfile  # noqa: PLC0415 -- only for --demo

    from jackline.autopsy.replica import READ_AT, write_replica  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="jackline-demo-") as folder:
        write_replica(Path(folder))
        found = sources.find([folder], stores=ClientFolders.of(Path(folder), {}))
        evidence = reader.read(found)
    # The folder is gone by now; paths in it are shown as if they were in a home folder.
    for story in evidence.stories:
        story.path = Path("~") / story.path.relative_to(folder)
        if story.result_at is not None:
            story.result_at = story.result_at.replace(folder, "~")
    return evidence, READ_AT


def _show(found: report.WhyReport, *, as_json: bool, html_file: str | None) -> None:
    if html_file is not None:
        from jackline.autopsy import html_report  # noqa: PLC0415 -- only for --html

        try:
            Path(html_file).write_text(html_report.page(found), encoding="utf-8")
        except OSError as error:
            raise BadArgumentError(
                f"{html_file} cannot be written: {error.strerror or type(error).__name__}",
                hint="name a file in a folder that you may write to",
            ) from error
        click.echo(f"wrote {html_file}", err=True)
    if as_json:
        document = msgspec.json.encode(found.to_json())
        click.echo(msgspec.json.format(document, indent=2))
    elif html_file is not None:
        click.echo(found.verdict)
    else:
        in_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        paint = _paint if in_colour else text_report.unpainted
        click.echo(text_report.render(found, width=_width(), paint=paint), nl=False)


def _paint(text: str, tone: Tone) -> str:
    return click.style(text, **_STYLES[tone])  # type: ignore[arg-type]


def _show_period(evidence: TranscriptSet, since: datetime, now: datetime, *, as_json: bool) -> int:
    from jackline.autopsy.summary import Summary  # noqa: PLC0415 -- only for --since

    summed = Summary.of(evidence, since=since, now=now)
    if as_json:
        document = msgspec.json.encode(summed.as_document())
        click.echo(msgspec.json.format(document, indent=2))
    else:
        click.echo(summed.as_text(width=_width()), nl=False)
        read = f"read {summed.files_read:,} files ({size(summed.bytes_read)})"
        click.echo("\n".join([read, *text_report.problem_lines(summed.problems)]), err=True)
    return 0 if summed.rows else 1


def _width() -> int:
    if not sys.stdout.isatty():
        return _WIDEST
    return min(os.get_terminal_size().columns, _WIDEST)


class _Progress:
    """A line on stderr that shows how much has been read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown_at = clock.monotonic()
        self._visible = False
        self._terminal = sys.stderr.isatty()

    def show(self, event: Event) -> None:
        """Update the line, at most once in a while."""
        if not isinstance(event, TranscriptsRead):
            return
        if not self._terminal or self._clock.monotonic() - self._shown_at < _PROGRESS_SECONDS:
            return
        self._shown_at = self._clock.monotonic()
        self._visible = True
        share = event.bytes_done / max(event.bytes_total, 1)
        files = f"{event.files_done:,} of {event.files_total:,} files"
        click.echo(f"\r\x1b[Kreading {files}, {share:.0%}", nl=False, err=True)

    def clear(self) -> None:
        """Clear the line."""
        if self._visible:
            click.echo("\r\x1b[K", nl=False, err=True)
