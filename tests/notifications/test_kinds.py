"""Each of the five kinds of messages reaches a real webhook from a whole service, once, signed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from jackline.assembly import Service, StateDir
from jackline.budgets.budget import Budget
from jackline.config import Config
from jackline.drills.drill_clock import DrillClock
from jackline.flows.records import RunRecord, RunState
from jackline.flows.settings import RunSettings, encode_settings
from jackline.flows.store import open_run_store, run_store_url
from jackline.gateway.settings import HoldSettings
from jackline.notifications.delivery import HEADER, signature
from jackline.notifications.settings import NotifySettings
from jackline.providers.settings import UpstreamSettings
from jackline.testing import SimulatedProvider
from tests.assembly.world import ask, config_for, question, request, run, until
from tests.notifications.webhooks import Receiver, receiver
from tests.ports import free_port

SECRET = "a secret of the receiver"  # noqa: S105 -- a test's
# An incident has to last for ten of the service's seconds before it is sent.
SPEED = 40.0


@dataclass
class Told:
    """What the webhook has received so far."""

    kept: Receiver

    def about(self, kind: str) -> list[str]:
        found = [json.loads(body) for _, body in self.kept.got]
        return [each["text"] for each in found if each["about"] == kind]

    async def one(self, kind: str) -> str:
        """The only message of that kind, after it had the time to be sent twice."""
        await until(lambda: bool(self.about(kind)))
        await asyncio.sleep(30 / SPEED)
        (text,) = self.about(kind)
        return text


@contextmanager
def shown() -> Iterator[Told]:
    with receiver() as kept:
        yield Told(kept)
    for headers, body in kept.got:
        time = int(headers[HEADER].partition(",")[0].removeprefix("t="))
        assert headers[HEADER] == signature(SECRET, time, body)


def service(config: Config, shown: Told) -> Service:
    notify = NotifySettings(webhook=shown.kept.url, secret=SECRET)
    return Service(replace(config, notify=notify), clock=DrillClock(SPEED))


async def kept_run(config: Config, *records: RunRecord) -> None:
    """A run as its process left it, state after state."""
    folder = StateDir(config.state_dir)
    folder.make()
    engine = open_run_store(run_store_url(folder.folder))
    try:
        first, *rest = records
        claim = await engine.create(first, owner="test", lease=3600.0)
        for record in rest:
            await engine.let_go(claim, record)
    finally:
        await engine.close()


RUN = RunRecord("9f3c", "many", "", b"{}")


def test_a_parked_account_is_one_message_however_many_agents_wait(tmp_path: Path) -> None:
    async def main(shown: Told, provider: SimulatedProvider) -> None:
        provider.quota_wall(resets_in=7200.0)
        config = config_for(tmp_path, provider.url, hold=HoldSettings(quota=36000.0))
        async with service(config, shown) as running:
            asked = [
                asyncio.ensure_future(
                    ask(
                        running.url,
                        request(
                            b"POST",
                            b"/v1/messages",
                            question(),
                            (b"x-claude-code-session-id", b"s%d" % number),
                        ),
                    )
                )
                for number in range(9)
            ]
            text = await shown.one("parked")
            assert "is parked until" in text
            assert "It goes on by itself." in text
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    with shown() as hook, SimulatedProvider() as provider:
        run(main(hook, provider))


def test_a_run_that_waits_for_a_person_is_reported_with_what_to_do(tmp_path: Path) -> None:
    async def main(shown: Told) -> None:
        config = config_for(tmp_path, "http://127.0.0.1:1")
        await kept_run(config, RUN, replace(RUN, state=RunState.PARKED, why="the bill is unpaid"))
        async with service(config, shown) as running:
            assert "jackline resume 9f3c" in await shown.one("needs-you")
            verdict = str(running.status()["verdict"])
            assert "1 needs you: many (9f3c) is parked until you say so" in verdict

    with shown() as hook:
        run(main(hook))


def test_a_run_that_finishes_while_the_service_runs_is_reported(tmp_path: Path) -> None:
    async def main(shown: Told) -> None:
        config = config_for(tmp_path, "http://127.0.0.1:1")
        await kept_run(config, replace(RUN, run_id="old"), replace(RUN, run_id="old", state=DONE))
        async with service(config, shown) as running:
            await running._notifier.look()
            await kept_run(config, RUN, replace(RUN, state=DONE, cost=3.1))
            assert "many (9f3c) has finished: no agents; $3.10." in await shown.one("run-finished")

    with shown() as hook:
        run(main(hook))


DONE = RunState.FINISHED


def test_a_run_near_its_budget_is_reported(tmp_path: Path) -> None:
    async def main(shown: Told) -> None:
        config = config_for(tmp_path, "http://127.0.0.1:1")
        settings = encode_settings(RunSettings(budgets=(Budget(dollars=2.0),)))
        limited = replace(RUN, settings=settings)
        stopped = replace(limited, state=RunState.STOPPED, cost=1.7)
        await kept_run(config, limited, stopped)
        async with service(config, shown):
            assert "has used 85% of its budget" in await shown.one("budget-near")

    with shown() as hook:
        run(main(hook))


def test_calls_that_go_to_another_upstream_are_reported(tmp_path: Path) -> None:
    async def main(shown: Told, provider: SimulatedProvider) -> None:
        config = config_for(tmp_path, "http://127.0.0.1:1")
        dead = UpstreamSettings(name="first", url=f"http://127.0.0.1:{free_port()}")
        live = UpstreamSettings(name="second", url=provider.url)
        config = replace(config, gateway=replace(config.gateway, upstreams=(dead, live)))
        async with service(config, shown) as running:
            asked = request(b"POST", b"/v1/messages", question())
            while not shown.about("upstream-moved"):
                assert (await ask(running.url, asked)).status == 200
                await asyncio.sleep(2 / SPEED)
            assert "Calls are answered by second, because first is" in (
                await shown.one("upstream-moved")
            )

    with shown() as hook, SimulatedProvider() as provider:
        run(main(hook, provider))
