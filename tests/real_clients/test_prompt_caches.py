"""Sessions of the real Claude Code, with sub-agents, keep their prompt caches at a narrow limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.drills.drill_clock import DrillClock
from jackline.drills.environment import open_gateway
from jackline.gateway.caller import conversation_of, prefix_of
from jackline.providers.settings import UpstreamSettings
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import RequestLedger, RequestOutcome
from jackline.simulator.limits import BucketSettings, Counts
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule, Say
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import ServiceSettings
from tests.claude_turns import fan_out
from tests.real_clients.clients import claude_binary, environment

pytestmark = pytest.mark.real_client

MODEL = "claude-opus-5-5"
SPEED = 20.0
SESSIONS, PARTS, LOOKS = 4, 3, 6
# About a quarter of what they ask for while all is warm; and the provider's seconds that the same
# work takes without a limit.
PER_MINUTE = 18_000
UNLIMITED = 277.0
# The part of the prompt before that must be read; what all share is less.
HIT = 0.9
DONE = "All parts are back."
SERVICE = ServiceSettings(first_byte=1.0, first_byte_spread=0.0, tokens_per_second=60.0)
# A file of 1,500 tokens; what it says does not matter.
LOOK = ("Bash", {"command": "head -c 6000 /dev/zero | tr '\\0' x", "description": "Look"})
HOOK = {"type": "prompt", "prompt": "Is this fine? $ARGUMENTS"}
HOOKS = {"hooks": {"PostToolUse": [{"matcher": "Bash", "hooks": [HOOK]}]}}


def reply(asked: ClientRequest) -> Reply:
    if not asked.tools:
        return Say(json.dumps({"ok": True, "reason": "It is fine."}))  # the hook's prompt
    if asked.agent:
        return Say("I look.", (LOOK,)) if asked.turn < LOOKS else Say("This part is fine.")
    if asked.turn == 0:
        return fan_out([f"PART-{n}: look at it" for n in range(1, PARTS + 1)], background=False)
    return Say(DONE)


async def session(place: Path, url: str) -> str:
    """What one session printed at its end."""
    home, project = place / "home", place / "project"
    home.mkdir(parents=True)
    project.mkdir()
    # Side calls go to the same model as the conversation, and so to the same lane.
    surroundings = {**environment(home, url), "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL}
    process = await asyncio.create_subprocess_exec(
        *(str(claude_binary()), "-p", "TASK: have the parts reviewed.", "--model", MODEL),
        *("--allowedTools", "Bash,Agent", "--settings", json.dumps(HOOKS)),
        cwd=project,
        env=surroundings,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return printed.decode().strip()


async def fleet(folder: Path, url: str) -> list[str]:
    async with asyncio.timeout(300):  # only a test that fails ever waits so long
        places = [folder / str(number) for number in range(SESSIONS)]
        return await asyncio.gather(*(session(place, url) for place in places))


@dataclass(frozen=True)
class Played:
    """What became of a fleet: its sessions' last words, the provider's ledger, and its requests."""

    said: Sequence[str]
    ledger: RequestLedger
    asked: Sequence[ClientRequest]

    @cached_property
    def conversations(self) -> list[list[ClientRequest]]:
        """The requests of each agent to its model, side calls left out."""
        found: dict[tuple[str, str], list[ClientRequest]] = {}
        for asked in self.asked:
            if asked.tools:
                found.setdefault((asked.session, asked.agent), []).append(asked)
        return list(found.values())


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("sessions")
    limit = BucketSettings(Counts.INPUT_TOKENS, per_minute=PER_MINUTE, burst_seconds=60.0)
    settings = ProviderSettings((limit,), service=SERVICE)
    server = SimulatorServer(settings, ReplyScript((Rule(reply),)), speed=SPEED, clients_hurry=True)

    async def play() -> Played:
        async with server:
            upstreams = [UpstreamSettings(url=server.url)]
            async with open_gateway(upstreams, DrillClock(SPEED)) as endpoint:
                said = await fleet(folder, endpoint.url)
            asked = [one.request for one in server.playing.recorded]
            return Played(said, server.playing.provider.ledger, asked)

    return event_loop.run(play())


def test_every_session_finishes_with_its_sub_agents_cached(played: Played) -> None:
    assert played.said == [DONE] * SESSIONS
    answers = {e.body_hash: e for e in played.ledger if e.outcome is RequestOutcome.COMPLETED}
    later = hits = 0
    for conversation in played.conversations:
        entries = [
            answers[body_hash] for body_hash in dict.fromkeys(a.body_hash for a in conversation)
        ]
        for before, entry in pairwise(entries):
            later += 1
            hits += entry.cache_read_tokens >= HIT * before.input_tokens
    assert later == SESSIONS * (1 + PARTS * LOOKS)
    assert hits >= 0.9 * later, f"{hits} of {later}"


def test_the_limit_makes_them_wait_several_times_as_long_as_they_would_take(played: Played) -> None:
    answered = [e for e in played.ledger if e.outcome is RequestOutcome.COMPLETED]
    assert answered[-1].arrived - answered[0].arrived > 3 * UNLIMITED


def test_a_conversation_has_one_name_and_its_side_calls_have_others(played: Played) -> None:
    names = [{conversation_name(one) for one in talk} for talk in played.conversations]
    assert [len(each) for each in names] == [1] * SESSIONS * (1 + PARTS)
    talks = set().union(*names)
    assert len(talks) == len(names)
    asides = {conversation_name(asked) for asked in played.asked if not asked.tools}
    assert len(asides) >= SESSIONS * PARTS, "the hooks have asked"
    assert not asides & talks


def test_sub_agents_of_one_kind_share_their_prefix_across_sessions(played: Played) -> None:
    prefixes = {prefix_of(body_of(one)) for one in played.asked if one.agent and one.tools}
    assert [bool(prefix.name) for prefix in prefixes] == [True]


def conversation_name(asked: ClientRequest) -> str:
    return conversation_of((asked.session, asked.agent or None), body_of(asked))


def body_of(asked: ClientRequest) -> bytes:
    """The body as the client writes it."""
    return json.dumps(asked.body, ensure_ascii=False, separators=(",", ":")).encode()
