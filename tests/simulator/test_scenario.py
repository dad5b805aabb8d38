"""Scenario files are read strictly, and the packaged ones work."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackline.errors import BadArgumentError, UnreadableError
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.reply_script import Say
from jackline.simulator.scenario import Scenario
from tests.simulator.http_client import document
from tests.simulator.test_reply_script import client_request

EVERYTHING = """
description = "all there is"
answer_tokens = 40
models = ["m1"]
[service]
median = 8
throttle_latency = [0.1, 0.2]
[[bucket]]
counts = "requests"
per_minute = 50
rejects_consume = true
[concurrency]
streams = 4
[hidden]
streams = 8
schedule = [1.0, 0.5]
[[window]]
claim = "five_hour"
tokens = 1000
[[fault]]
effect = "envoy"
until = 60
[fault.recovery]
streams = 16
[[rule]]
prompt = "PART"
text = "Looking."
calls = [{ name = "Bash", input = { command = "ls" } }]
[[rule]]
turn = 0
fault = { effect = "cut", at_share = 0.5 }
"""


def test_every_part_of_a_scenario_reaches_the_settings() -> None:
    scenario = Scenario.parse("mine", EVERYTHING)
    settings = scenario.settings
    assert (scenario.description, settings.models) == ("all there is", ("m1",))
    assert settings.service.median == 8
    assert settings.buckets[0].rejects_consume
    assert settings.concurrency is not None
    assert settings.hidden is not None
    assert settings.windows[0].tokens == 1000
    recovery = settings.faults[0].recovery
    assert recovery is not None
    assert recovery.streams == 16
    say = scenario.script.reply(client_request(document("PART-1")))
    assert say == Say("Looking.", (("Bash", {"command": "ls"}),))
    assert scenario.script.reply(client_request(document("x"))) == Fault(Effect.CUT, at_share=0.5)


@pytest.mark.parametrize("name", Scenario.packaged_names())
def test_packaged_scenarios_load_and_describe_themselves(name: str) -> None:
    assert Scenario.load(name).description.endswith(".")


def test_the_packaged_scenarios_are_these() -> None:
    assert Scenario.packaged_names() == ["healthy", "outage", "quota-wall", "throttle-storm"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nonsense = 1", "nonsense: there is no such key"),
        ("fault = 3", "fault: expected"),
        ('[[fault]]\neffect = "nope"', "fault[0].effect: invalid enum value 'nope'"),
        ('[[fault]]\neffect = "hang"\nshare = 2', "fault[0].share: 2 is not a share"),
        ('[[fault]]\neffect = "hang"\nshre = 2', "fault[0].shre: there is no such key"),
        ('[[fault]]\neffect = "hang"\nuntil = -1', "fault[0].until: -1 is below zero"),
        ('[[fault]]\neffect = "hang"\n[fault.recovery]\nfirst = 0.1', "fault[0].recovery: "),
        ('[service]\nmedian = "x"', "service.median: expected"),
        ('[[bucket]]\ncounts = "requests"\nper_minute = 0', "bucket[0].per_minute: 0 is not above"),
        ('[[bucket]]\ncounts = "requests"\nper_minute = nan', "bucket[0].per_minute: nan is not"),
        ("= 1", "the scenario x is not TOML"),
    ],
)
def test_errors_name_the_key(text: str, complaint: str) -> None:
    with pytest.raises(BadArgumentError) as caught:
        Scenario.parse("x", text)
    assert caught.value.message.startswith(complaint)


def test_a_missing_file_lists_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError) as caught:
        Scenario.load(str(tmp_path / "none.toml"))
    assert "throttle-storm" in caught.value.hint
    odd = tmp_path / "odd.toml"
    odd.write_bytes(b"\xff\xfe")
    with pytest.raises(BadArgumentError):
        Scenario.load(str(odd))
