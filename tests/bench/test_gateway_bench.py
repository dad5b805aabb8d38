"""The gateway bench counts honestly: whole answers only, medians, strict targets, no child left.

Rules: (1) nothing is installed and no gateway is started here; (2) no rate is pinned, since that is
what the bench itself is for.
Not here: the gateway (tests/gateway/).
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_bench.children import Children, Cores, free_port, wait_until
from gateway_bench.endurance import judge_endurance, slope
from gateway_bench.framing import FramingError, Message
from gateway_bench.measures import (
    Cell,
    Figure,
    Order,
    Reading,
    StreamOrder,
    StreamReading,
    figure,
    percentile,
)
from gateway_bench.peer import Launch, MissingError, run_installer
from gateway_bench.peers import PEERS
from gateway_bench.proc import cpu_seconds, resident_bytes, runs, tree
from gateway_bench.rounds import Loads, Pace
from gateway_bench.streams import judge_streams
from gateway_bench.subjects import Subject, ask, start_upstream
from gateway_bench.table import as_json, endurance_markdown, markdown, streams_markdown
from gateway_bench.targets import Book, Verdict, judge
from gateway_bench.traffic import (
    COUNTER,
    LARGE,
    SMALL,
    body_text,
    build,
    is_whole,
    json_answer,
    stream_answer,
)
from gateway_bench.upstream import wants_stream

C32 = Cell(SMALL, stream=False, connections=32)
FIRST_BYTE = Cell(LARGE, stream=True, connections=1)
READING = Reading(100, 0, "", 2.0, 0.5, 1e-3, 2e-3, 1e-3, 2e-3, 100)


def fed(data: bytes, cuts: list[int]) -> tuple[Message, list[bool]]:
    message = Message()
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(places) if start < end]
    return message, [message.complete_with(piece) for piece in pieces]


def rates(cell: Cell = C32, first: float = 0.0, **rps: float) -> list[Figure]:
    return [Figure(name, cell, (rate,), (None,), 0.0, 0.0, first, 0) for name, rate in rps.items()]


def verdict(figures: list[Figure], words: str) -> Verdict:
    (found,) = [each for each in judge(figures) if words in each.text]
    return found


@given(st.data(), st.booleans())
def test_an_answer_is_whole_at_its_last_byte_and_never_before(
    data: st.DataObject, stream: bool
) -> None:
    answer = stream_answer() if stream else json_answer()
    cuts = data.draw(st.lists(st.integers(1, len(answer) - 1), max_size=5))
    message, complete = fed(answer, cuts)
    assert complete == [False] * (len(complete) - 1) + [True]
    assert message.whole == answer
    assert is_whole(message.whole, stream=stream)


def test_bytes_behind_an_answer_and_an_answer_without_an_end_are_refused() -> None:
    with pytest.raises(FramingError):
        Message().complete_with(json_answer() + b"x")
    with pytest.raises(FramingError):
        Message().complete_with(b"HTTP/1.1 200 OK\r\n\r\nuntil I close")


def test_an_error_or_a_stream_without_its_end_is_not_a_whole_answer() -> None:
    assert not is_whole(json_answer().replace(b"200 OK", b"500 No"), stream=False)
    assert not is_whole(stream_answer().replace(b"message_stop", b"message_halt"), stream=True)
    assert not is_whole(json_answer(), stream=True)


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("stream", [False, True])
def test_a_body_has_its_exact_size_is_json_and_differs_by_its_counter(
    size: int, stream: bool
) -> None:
    body = body_text(size, stream=stream)
    request = build(body, port=1, session="s", key="k")
    sent = [b"".join(request.numbered(number)) for number in (1, 2)]
    assert len(body) == size
    assert body.count(COUNTER) == 1
    assert json.loads(body)["stream"] is stream
    assert sent[0] != sent[1]
    for data in sent:
        message, complete = fed(data, [])
        assert complete == [True]
        assert wants_stream(message) is stream


def test_the_upstream_finds_the_stream_flag_wherever_a_peer_has_put_it() -> None:
    body = body_text(LARGE, stream=False).replace(',"stream":false', "")
    moved = f'{{"stream": true, {body[1:]}'.encode()
    head = f"POST / HTTP/1.1\r\ncontent-length: {len(moved)}\r\n\r\n".encode()
    message, _ = fed(head + moved, [70_000])
    assert wants_stream(message)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_percentile_is_a_measured_value_that_enough_values_do_not_exceed(
    values: list[float], part: float
) -> None:
    found = percentile(values, part)
    assert found in values
    assert sum(value <= found for value in values) >= part * len(values)


def test_a_figure_is_the_median_of_its_rounds_and_the_sum_of_its_errors() -> None:
    rounds = [dataclasses.replace(READING, answers=n, errors=1) for n in (10, 200, 1_000)]
    made = figure("jackline", C32, rounds)
    assert (made.rps, made.errors, len(made.rates)) == (100.0, 3, 3)
    assert made.cpu == 0.5 / 200


def test_orders_and_readings_survive_their_way_between_the_programs() -> None:
    order = Order(1, 2, 3, 4, stream=True, key="k", headers=(("a", "b"),))
    slow = StreamOrder(1, 2, 3, 4, key="k", headers=(("a", "b"),))
    reading = dataclasses.replace(READING, marks=((1, 2), (3, None)))
    assert Order.from_json(json.loads(json.dumps(order.to_json()))) == order
    assert StreamOrder.from_json(json.loads(json.dumps(slow.to_json()))) == slow
    assert Reading.from_json(json.loads(json.dumps(reading.to_json()))) == reading


@pytest.mark.parametrize(("ours", "met"), [(1_000.0, True), (999.999, False)])
def test_targets_are_judged_without_rounding(ours: float, met: bool) -> None:
    figures = rates(jackline=ours, litellm=10.0, portkey=100.0, ccr=99.0)
    assert verdict(figures, "times the fastest (portkey)").met is met
    assert verdict(figures, "times LiteLLM").met is met


def test_subjects_are_compared_round_by_round() -> None:
    ours, theirs = rates(jackline=1.0, litellm=1.0)
    # A neighbour took half of the machine in the first round and most of it in the last.
    ours = dataclasses.replace(ours, rates=(500.0, 1_100.0, 120.0), costs=(1e-3, 1e-3, 2e-3))
    theirs = dataclasses.replace(theirs, rates=(5.0, 10.0, 1.0), costs=(0.1, 0.1, 0.2))
    book = Book([ours, theirs])
    assert book.times("litellm", C32) == 110.0
    assert book.times_cheaper("litellm", C32) == 100.0
    assert "by processor time 100.0" in verdict([ours, theirs], "times LiteLLM").text


def test_the_worse_of_rate_and_processor_time_counts_beside_nginx() -> None:
    ours, nginx = rates(jackline=5_000.0, nginx=10_000.0)
    busy = [
        dataclasses.replace(ours, costs=(200e-6,)),
        dataclasses.replace(nginx, costs=(25e-6,)),
    ]
    assert verdict([ours, nginx], "part of nginx").met is True
    assert verdict(busy, "part of nginx").met is False


@pytest.mark.parametrize(("ours", "met"), [(700e-6, True), (701e-6, False)])
def test_only_the_added_time_to_first_byte_counts(ours: float, met: bool) -> None:
    times = {"direct": 100e-6, "nginx": 200e-6, "jackline": ours}
    figures = [rates(FIRST_BYTE, first, **{name: 1.0})[0] for name, first in times.items()]
    assert verdict(figures, "first byte").met is met


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    assert {each.met for each in judge(rates(direct=1.0))} == {None}
    assert judge_streams(None, 5_000)[0].met is None


def test_an_error_through_the_gateway_misses_a_target() -> None:
    broken = [dataclasses.replace(each, errors=1) for each in rates(jackline=1.0)]
    assert verdict(broken, "errors through").met is False


def test_streams_have_to_be_all_open_unbroken_and_light() -> None:
    good = StreamReading(5, 0, "", 5, 50, 0.0, 0.0, 0.0, 1_000, 201_000, 1.0)
    heavy = dataclasses.replace(good, bytes_most=201_001)
    few = dataclasses.replace(good, peak_live=4, errors=1)
    assert [each.met for each in judge_streams(good, 5)] == [True, True, True]
    assert [each.met for each in judge_streams(heavy, 5)] == [True, True, False]
    assert [each.met for each in judge_streams(few, 5)][:2] == [False, False]


def test_memory_is_flat_when_its_line_behind_the_first_quarter_is() -> None:
    jump = tuple((n, 50_000_000 if n > 20 else 10_000_000) for n in range(10, 110, 10))
    leak = tuple((n, 1_000 * n) for n in range(10, 110, 10))
    assert slope([(0, 5), (10, 25)]) == 2.0
    assert [
        each.met for each in judge_endurance(dataclasses.replace(READING, marks=jump), 100)
    ] == [True] * 3
    assert judge_endurance(dataclasses.replace(READING, marks=leak), 100)[2].met is False


def test_the_table_shows_every_subject_and_json_every_figure() -> None:
    figures = [*rates(direct=3.0, nginx=2.0, jackline=1.0), *rates(FIRST_BYTE, jackline=1.0)]
    with Children() as children:
        child = children.start([sys.executable, "-c", ""], None, Path(os.devnull))
        subjects = [Subject(name, "1.0", 1, child) for name in ("direct", "nginx", "jackline")]
    table = markdown(figures, subjects, 0.5)
    assert table.count("| jackline |") == 2
    assert "| nginx | 2 |" in table
    assert "noisy" in table
    assert "noisy" not in markdown(figures, subjects, 0.01)
    assert len(json.loads(as_json(figures, subjects, judge(figures), None))["figures"]) == 4
    assert "| jackline | 5 |" in streams_markdown(
        {"jackline": StreamReading(5, 0, "", 5, 50, 0.0, 0.0, 0.0, None, None, None)}
    )
    assert "| 7 | 1.00 |" in endurance_markdown(dataclasses.replace(READING, marks=((7, 10**6),)))


def test_no_child_outlives_the_bench_not_even_a_grandchild(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    log = tmp_path / "log"
    with Children() as children:
        child = children.start([sys.executable, "-c", script], None, log)
        assert wait_until(lambda: bool(log.read_text("utf-8")), 120.0, child)
        family = tree(child.pid)
        used, held = cpu_seconds(child.pid), resident_bytes(child.pid)
    assert child.returncode is not None
    if Path("/proc").is_dir():
        assert len(family) == 2
        assert used is not None
        assert held is not None
        assert not any(runs(pid) for pid in family)


def test_what_cannot_be_installed_says_why(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no-such-program"):
        run_installer(["no-such-program"], tmp_path)
    with pytest.raises(MissingError, match="because"):
        run_installer([sys.executable, "-c", "raise SystemExit('because')"], tmp_path)


def test_every_peer_can_say_how_it_is_started(tmp_path: Path) -> None:
    for name, peer in PEERS.items():
        own = tmp_path / name
        own.mkdir()
        launch = peer.launch(1, 2, own)
        assert launch.command
        assert launch.key


def test_the_load_and_the_upstream_understand_each_other(tmp_path: Path) -> None:
    cores = Cores(None, None)
    with Children() as children:
        upstream = start_upstream(children, cores, tmp_path)
        assert ask(upstream.port, Launch([]), stream=True) == ""
        for stream in (False, True):
            cell = Cell(SMALL, stream, connections=2)
            loads = Loads(cores)
            order = loads.order(upstream, cell, Pace(seconds=0.0, warm_seconds=0.0))
            reading = loads.run(dataclasses.replace(order, calls_per_session=3, least_answers=20))
            assert reading.errors == 0, reading.error
            assert reading.answers >= 20
        refused = dataclasses.replace(upstream, port=free_port())
        assert ask(refused.port, Launch([]), stream=False)


def test_the_script_explains_itself() -> None:
    script = Path(__file__).parents[2] / "bench" / "gateway.py"
    said = subprocess.run(
        [sys.executable, str(script), "--help"], capture_output=True, text=True, check=True
    )
    assert "--streams" in said.stdout
