"""`jackline simulate`: play a provider with limits and faults on a loopback port.

Rules: (1) it listens on loopback only; (2) the first line is the address, and Ctrl-C ends it with
the counts of the ledger.
Not here: the provider (simulator/), scenario files (simulator/scenario.py).
"""

from __future__ import annotations

import asyncio
import json

import click

from jackline import event_loop
from jackline.agents.prices import in_dollars
from jackline.errors import BadArgumentError
from jackline.simulator.ledger import Bill, RequestLedger
from jackline.simulator.scenario import Scenario, load
from jackline.simulator.server import SimulatorServer

EXIT_INTERRUPTED = 130


@click.command()
@click.argument("scenario", default="healthy")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0 takes a free one.")
@click.option("--seed", type=int, default=0, help="The same seed draws the same lots.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0.001),
    default=1.0,
    help="How many seconds of the scenario pass in one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON documents, one per line.")
def simulate(scenario: str, port: int, seed: int, speed: float, as_json: bool) -> int:
    """Play an LLM provider with limits, quotas and faults on a loopback port.

    SCENARIO is a TOML file, or one of the packaged: healthy, outage, quota-wall, throttle-storm.

    \b
    Examples:
      jackline simulate
      jackline simulate outage --port 8080
      curl -X POST localhost:8080/_control/faults -d '{"effect": "throttled", "until": 60}'
      curl localhost:8080/_control/summary

    Ctrl-C ends it and prints the ledger's counts and the bill.

    Exit codes: 130 ended by Ctrl-C, 2 usage.
    """
    chosen = load(scenario)
    server = SimulatorServer(chosen.settings, chosen.script, seed=seed, speed=speed, port=port)
    try:
        event_loop.run(_serve(server, chosen, as_json=as_json))
    except OSError as error:
        raise BadArgumentError(
            f"port {port} cannot be opened: {error.strerror}", next="take another, or --port 0"
        ) from error
    except KeyboardInterrupt:
        _tell_end(server.playing.provider.ledger, as_json=as_json)
    return EXIT_INTERRUPTED


async def _serve(server: SimulatorServer, scenario: Scenario, *, as_json: bool) -> None:
    async with server:
        _tell_start(server.url, scenario, as_json=as_json)
        await asyncio.Event().wait()


def _tell_start(url: str, scenario: Scenario, *, as_json: bool) -> None:
    if as_json:
        start = {"schema": "jackline.simulate/1", "url": url, "scenario": scenario.name}
        click.echo(json.dumps({**start, "control": f"{url}/_control/"}))
        return
    click.echo(f"{url}  plays {scenario.name}: {scenario.description}")
    click.echo(f"next:  export ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=sk-ant-simulated")
    click.echo(f"       faults and ledger: {url}/_control/   end with Ctrl-C")


def _tell_end(ledger: RequestLedger, *, as_json: bool) -> None:
    summary = ledger.summary()
    if as_json:
        click.echo(json.dumps({"schema": "jackline.simulate/1", "ledger": summary}))
        return
    click.echo(
        f"\n{summary['requests']} requests: {summary['useful']} useful, {summary['wasted']} wasted"
        f" ({summary['after_wall']} of them into a known wall), {summary['open']} still open."
    )
    for reason, count in ledger.reasons.most_common():
        click.echo(f"  {count:>7}  {reason}")
    click.echo(_bill_text(ledger.bill()))


def _bill_text(bill: Bill) -> str:
    tokens = bill.tokens
    text = (
        f"Bill: {in_dollars(bill.dollars)} for {tokens['input']:,} input,"
        f" {tokens['cache_read']:,} read from caches,"
        f" {tokens['cache_write_5m'] + tokens['cache_write_1h']:,} written to caches"
        f" and {tokens['output']:,} output tokens"
    )
    if bill.unpriced:
        text += f"; without a listed price: {', '.join(sorted(bill.unpriced))}"
    return f"{text}."
