"""The simulated provider of a soak: what it is asked, what it answers, and when processes died.

Rules: every question has a name (label, turn) that stays the same through retries, continuations
and resumes; the answer depends on that name only, so that an answer given to the wrong asker is
seen; the provider's ledger and the list of kills are the witnesses.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import LedgerEntry, RequestLedger
from jackline.simulator.live_provider import LiveProvider
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule, Say, long_answer
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import ServiceSettings

SERVICE = ServiceSettings(first_byte=0.2, first_byte_spread=0.5, tokens_per_second=150.0)
_LONGEST_FILLER = 300
_SLOW_SHARE = 0.03
_SLOWEST_FIRST_BYTE = 8.0
GATEWAY = ""


class Question(NamedTuple):
    """What one answer is for: whose conversation, and after how many entries of its user."""

    label: str
    turn: int


class Kill(NamedTuple):
    """One process killed: between which moments of the provider's clock, and whose it was."""

    begun: float
    over: float
    whose: str
    """The name of a run, or `GATEWAY`."""

    def concerns(self, label: str) -> bool:
        """Whether the agent with this label had something in hand there."""
        return self.whose == GATEWAY or label.startswith(f"{self.whose}.")


@dataclass(slots=True)
class SoakProvider:
    """The provider at work."""

    url: str
    playing: LiveProvider
    questions: dict[str, Question] = field(default_factory=dict)
    """What was asked, by the hash of the request's body."""
    kills: list[Kill] = field(default_factory=list)

    @property
    def ledger(self) -> RequestLedger:
        """Every request so far."""
        return self.playing.provider.ledger

    def now(self) -> float:
        """The moment, by the ledger's clock."""
        return self.playing.now()

    def question(self, entry: LedgerEntry) -> Question | None:
        """What this request asked; None for one that the model never got to see."""
        return self.questions.get(entry.body_hash)


def check_word(label: str, turn: int) -> str:
    """The word that only the right answer to this question contains."""
    return hashlib.sha256(f"{label}/{turn}".encode()).hexdigest()[:12]


def last_words(label: str, turns: int) -> str:
    """What the model says in the last turn."""
    return f"{label} is done: {check_word(label, turns)}"


@asynccontextmanager
async def soak_provider(draw: random.Random) -> AsyncIterator[SoakProvider]:
    """A provider on a loopback port for as long as the block runs."""

    def hear(asked: ClientRequest) -> Reply:
        question, turns = _read(asked)
        there.questions[asked.body_hash] = question
        return _answer(question, turns, draw)

    server = SimulatorServer(
        ProviderSettings(service=SERVICE), ReplyScript((Rule(hear),)), seed=draw.getrandbits(32)
    )
    async with server:
        there = SoakProvider(server.url, server.playing)
        yield there


def _read(asked: ClientRequest) -> tuple[Question, int]:
    """Whose turn it is, and how many turns its conversation shall have."""
    said = asked.body.get("messages")
    entries = said if isinstance(said, list) else []
    turn = sum(entry.get("role") == "user" for entry in entries if isinstance(entry, dict))
    label, _, turns = asked.prompt.partition(":")[0].rpartition(" ")
    return Question(label or "unknown", turn), int(turns) if turns.isdecimal() else 1


def _answer(question: Question, turns: int, draw: random.Random) -> Say:
    delay = draw.random() * _SLOWEST_FIRST_BYTE if draw.random() < _SLOW_SHARE else 0.0
    if question.turn >= turns:
        return Say(last_words(*question), delay=delay)
    word = check_word(*question)
    filler = long_answer(draw.randint(0, _LONGEST_FILLER)).text
    look = ("look", {"part": question.label, "turn": question.turn, "word": word})
    return Say(f"{word} {filler}", (look,), delay)
