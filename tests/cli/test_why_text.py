"""`jackline why --text`, as a new user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import jackline
from tests.failures.examples import DATA

NOW = "2026-11-15T12:00:00+02:00"
KEYS = ["kind", "sub", "scope", "retry_same", "failover_helps", "retry_after_s", "resets_at"]


def test_a_quota_wall_is_reported_in_plain_sentences_with_its_reset_in_both_zones() -> None:
    answer = jackline(
        "why",
        "--now",
        NOW,
        "--text",
        "You've hit your session limit · resets 10:10pm (Europe/Kiev)",
    )
    assert answer.code == 0
    assert answer.out == (
        "This is the account's session limit: the account has used up its allowance; nothing is"
        " broken. Retrying before the reset cannot succeed; an API key or another upstream works"
        " meanwhile. It resets at 22:10 Europe/Kiev (20:10 UTC), in 10 h 10 min.\n"
    )
    assert answer.err == ""


def test_words_need_no_quotes_and_stdin_needs_no_words() -> None:
    plain = jackline("why", "--text", "API", "Error:", "529", "Overloaded")
    piped = jackline("why", stdin=b"API Error: 529\n  Overloaded\n")
    assert plain.out == piped.out
    assert "overload" in plain.out


def test_a_pasted_json_error_is_understood() -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    answer = jackline("why", "--json", "--text", json.dumps(body))
    document = json.loads(answer.out)
    assert document["schema"] == "jackline.why-text/1"
    assert document["kind"] == "overloaded"
    assert document["evidence"]
    assert set(KEYS) <= set(document)


def test_curl_output_brings_its_headers() -> None:
    paste = (
        b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 37\r\n\r\n"
        b'{"type":"error","error":{"type":"rate_limit_error","message":"Rate limited"}}'
    )
    document = json.loads(jackline("why", "--json", stdin=paste).out)
    assert (document["kind"], document["retry_after_s"]) == ("server_throttle", 37)


def test_status_and_headers_may_be_passed_beside_the_text() -> None:
    answer = jackline(
        "why",
        "--json",
        "--now",
        NOW,
        "--status",
        "429",
        "-H",
        "anthropic-ratelimit-unified-representative-claim: seven_day",
        "-H",
        "anthropic-ratelimit-unified-reset: 1795000000",
        "--text",
        "This request would exceed your account's rate limit.",
    )
    document = json.loads(answer.out)
    assert (document["kind"], document["sub"]) == ("account_quota", "weekly")
    assert document["resets_at"] == "2026-11-18T11:06:40+00:00"


def test_jsonl_answers_every_line_in_order_with_exactly_the_documented_keys() -> None:
    lines = (DATA / "corpus.jsonl").read_bytes()
    answer = jackline("why", "--jsonl", "--now", NOW, stdin=lines)
    answers = [json.loads(line) for line in answer.out.splitlines()]
    assert answer.code == 0
    assert len(answers) == len(lines.splitlines())
    assert all(list(each) == KEYS for each in answers)
    wanted = [json.loads(line)["expected"]["kind"] for line in lines.splitlines()]
    right = sum(a["kind"] == w for a, w in zip(answers, wanted, strict=True))
    assert right >= 0.97 * len(wanted)


def test_a_bad_line_is_answered_in_its_place_and_the_rest_goes_on() -> None:
    lines = b"\n".join(
        [
            b'{"where":"cli_text","text":"API Error: 529"}',
            b"{broken",
            b"",
            b'{"where":"nowhere"}',
            b"\xff\xfe",
            b'{"where":"http","status":"four"}',
            b'{"where":"http","status":503,"headers":{"Retry-After":["5"]},"extra":1}',
        ]
    )
    answer = jackline("why", "--jsonl", stdin=lines)
    answers = [json.loads(line) for line in answer.out.splitlines()]
    assert answer.code == 3
    assert ["error" in each for each in answers] == [False, True, True, True, True, True, False]
    assert answers[-1]["retry_after_s"] == 5


def test_what_is_not_recognised_says_so_and_exits_1() -> None:
    answer = jackline("why", "--text", "the weather is fine")
    assert answer.code == 1
    assert "nothing that Jackline knows" in answer.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("why", "--text", ""),
        ("why", "--now", "soon", "--text", "x"),
        ("why", "--header", "no colon", "--text", "x"),
        ("why", "--status", "42", "--text", "x"),
        ("why", "--text", "x", "--demo"),
        ("why", "--text", "x", "--since", "7d"),
        ("why", "--status", "429", "--html", "x.html"),
        ("why", "--nonsense"),
        ("nonsense",),
    ],
)
def test_bad_usage_exits_2_with_a_next_step(arguments: tuple[str, ...]) -> None:
    answer = jackline(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert "hint:" in answer.err or "--help" in answer.err or "Usage" in answer.err


@pytest.mark.parametrize("junk", [b"\xff\xfe\x00" * 1000, b"{" * 10_000, b"\x00", b'"'])
def test_junk_never_gives_a_traceback(junk: bytes) -> None:
    answer = jackline("why", "--text", "-", stdin=junk)
    assert answer.code in (0, 1)
    assert "Traceback" not in answer.err


def test_nothing_that_was_pasted_is_echoed_back_beyond_the_matched_words() -> None:
    secret = "sk-ant-api03-" + "x" * 40
    answer = jackline("why", "--json", "--text", f"API Error: 401 invalid x-api-key {secret}")
    assert secret not in answer.out + answer.err


def test_the_readme_of_exit_codes_is_true(tmp_path: Path) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "errors.md").read_text("utf-8")
    assert jackline("why", "API Error: 529").code == 0
    assert jackline("why", "--text", "hello").code == 1
    assert jackline("why", "--text", "").code == 2
    assert jackline("why", "--jsonl", stdin=b"x").code == 3
    assert jackline("why", tmp_path / "missing").code == 2
    assert jackline("why", tmp_path).code == 1
    for code in ("0", "1", "2", "3", "75", "130"):
        assert f"| {code} |" in docs


@pytest.mark.parametrize(
    "words", [("429 Too Many Requests",), ("API Error: 429",), ("Error", "--status", "429")]
)
def test_a_bare_429_blames_neither_side(words: tuple[str, ...]) -> None:
    plain = jackline("why", "--text", *words)
    assert (plain.code, plain.err) == (0, "")
    assert "does not say whose limit it is" in plain.out
    assert "your own traffic may" in plain.out
    assert "the provider may" in plain.out
    assert "Waiting and retrying helps" in plain.out
    document = json.loads(jackline("why", "--json", "--text", *words).out)
    assert document["explanation"] == plain.out.strip()
    assert (document["kind"], document["sub"]) == ("server_throttle", None)


def test_one_that_says_whose_it_is_is_believed() -> None:
    text = "API Error: 429 Server is temporarily limiting requests (not your usage limit)"
    assert "your own usage is not the cause" in jackline("why", "--text", text).out


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Variables of a machine on which one session of Claude Code is stored."""
    project = tmp_path / "claude" / "projects" / "-p"
    project.mkdir(parents=True)
    line = {"type": "user", "sessionId": "529abc", "message": {"role": "user", "content": "hi"}}
    (project / "529abc.jsonl").write_text(json.dumps(line) + "\n")
    return {"CLAUDE_CONFIG_DIR": str(tmp_path / "claude"), "CODEX_HOME": str(tmp_path / "none")}


@pytest.mark.parametrize("word", ["API Error: 529 Overloaded", "overloaded_error", "504"])
def test_one_argument_that_is_no_id_and_no_path_is_an_error(
    word: str, home: dict[str, str]
) -> None:
    lone = jackline("why", word, env=home)
    assert (lone.code, lone.err) == (0, "")
    assert lone.out == jackline("why", "--text", word, env=home).out
    assert json.loads(jackline("why", "--json", word, env=home).out)["explanation"]


@pytest.mark.parametrize("word", ["529", "529abc"])
def test_an_id_comes_before_the_text_of_an_error(word: str, home: dict[str, str]) -> None:
    document = json.loads(jackline("why", "--json", word, env=home).out)
    assert document["schema"] == "jackline.why/2"


@pytest.mark.parametrize(
    "word", ["abc1", "./overloaded", "/no/Error 529", "my error 529x.jsonl", "~/x y", "a/529"]
)
def test_a_mistyped_id_or_path_is_no_text_of_an_error(word: str, home: dict[str, str]) -> None:
    answer = jackline("why", word, env=home)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(("error: No session", "error: There is no file"))


def test_an_empty_stdin_leaves_the_newest_session(home: dict[str, str]) -> None:
    for stdin in (b"", b" \n"):
        document = json.loads(jackline("why", "--json", stdin=stdin, env=home).out)
        assert document["schema"] == "jackline.why/2"
