"""`jackline simulate`: simulate a provider with limits and faults on a loopback port.

Rules: (1) it listens on loopback only; (2) the first line is the address, and Ctrl-C ends it with
the counts of the ledger.
"""

from __future__ import annotations

import asyncio
import json

import click

from jackline import event_loop
from jackline.agents.prices import in_dollars
from jackline.errors import BadArgumentError, ExitCode
from jackline.simulator.scenario import Scenario
from jackline.simulator.server import SimulatorServer


@click.command()
@click.argument("scenario", default="healthy")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port to listen on; 0 takes a free one.",
)
@click.option("--seed", type=int, default=0, help="The same seed gives the same random faults.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0.001),
    default=1.0,
    help="Seconds of the scenario per real second.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON documents, one per line.")
def simulate(scenario: str, port: int, seed: int, speed: float, as_json: bool) -> int:
    """Simulate an LLM provider with limits, quotas and faults on a loopback port.

    SCENARIO is a TOML file, or a packaged scenario: healthy, outage, quota-wall, throttle-storm.

    \b
    Examples:
      jackline simulate
      jackline simulate outage --port 8080
      curl localhost:8080/_control/faults -d '{"effect": "throttled"}'
      curl localhost:8080/_control/summary

    Ctrl-C ends it and prints the ledger's counts and the bill.

    Exit codes: 130 ended by Ctrl-C, 2 usage.
    """
    chosen = Scenario.load(scenario)
    server = SimulatorServer(chosen.settings, chosen.script, seed=seed, speed=speed, port=port)

    async def serve() -> None:
        async with server:
            url = server.url
            if as_json:
                start = {"schema": "jackline.simulate/1", "url": url, "scenario": chosen.name}
                click.echo(json.dumps({**start, "control": f"{url}/_control/"}))
            else:
                click.echo(f"{url}  simulates {chosen.name}: {chosen.description}")
                key = "ANTHROPIC_API_KEY=sk-ant-simulated"
                click.echo(f"next:  export ANTHROPIC_BASE_URL={url} {key}")
                click.echo(f"       faults and ledger: {url}/_control/   end with Ctrl-C")
            await asyncio.Event().wait()

    try:
        event_loop.run(serve())
    except OSError as error:
        raise BadArgumentError(
            f"port {port} cannot be opened: {error.strerror}", hint="use another, or --port 0"
        ) from error
    except KeyboardInterrupt:
        ledger = server.playing.provider.ledger
        summary = ledger.summary()
        if as_json:
            click.echo(json.dumps({"schema": "jackline.simulate/1", "ledger": summary}))
            return ExitCode.INTERRUPTED
        click.echo(
            f"\n{summary['requests']} requests: {summary['useful']} useful, {summary['wasted']}"
            f" wasted ({summary['after_wall']} of them into a known wall), {summary['open']} still"
            " open."
        )
        for reason, count in ledger.reasons.most_common():
            click.echo(f"  {count:>7}  {reason}")
        bill = ledger.bill()
        tokens = bill.tokens
        text = (
            f"Bill: {in_dollars(bill.dollars)} for {tokens['input']:,} input,"
            f" {tokens['cache_read']:,} read from caches,"
            f" {tokens['cache_write_5m'] + tokens['cache_write_1h']:,} written to caches"
            f" and {tokens['output']:,} output tokens"
        )
        if bill.unpriced:
            text += f"; without a listed price: {', '.join(sorted(bill.unpriced))}"
        click.echo(f"{text}.")
    return ExitCode.INTERRUPTED
