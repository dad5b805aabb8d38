"""Encrypted reasoning is sent when requested, and read again by the same server alone."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from jackline.simulator.reply_script import Say
from jackline.testing import SimulatedProvider


def ask(provider: SimulatedProvider, items: list[Any], *include: str) -> dict[str, Any]:
    body = json.dumps({"model": "gpt-5.5", "input": items, "include": include}).encode()
    headers = {"authorization": "Bearer k", "content-type": "application/json"}
    request = Request(f"{provider.url}/v1/responses", body, headers)  # noqa: S310 -- loopback
    with urlopen(request) as answer:  # noqa: S310 -- loopback
        result: dict[str, Any] = json.load(answer)
        return result


USER = {"type": "message", "role": "user", "content": "hi"}


def test_a_server_reads_its_own_reasoning_and_refuses_that_of_another() -> None:
    with SimulatedProvider() as one, SimulatedProvider() as other:
        one.says(Say("Hello."))
        assert [item["type"] for item in ask(one, [USER])["output"]] == ["message"]
        thought, _ = ask(one, [USER], "reasoning.encrypted_content")["output"]
        assert thought["type"] == "reasoning"
        ask(one, [USER, thought])
        with pytest.raises(HTTPError) as refused:
            ask(other, [USER, thought])
        assert refused.value.code == 400
        error = json.load(refused.value)["error"]
        assert (error["type"], error["code"]) == (
            "invalid_request_error",
            "invalid_encrypted_content",
        )
        refused.value.close()
