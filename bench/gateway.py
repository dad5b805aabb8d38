"""Measure the gateway beside nginx and its peers, and hold it to its targets.

Rules: (1) everything is measured in one interleaved run on one machine, so ratios mean something
where rates do not; (2) what cannot be installed or started here is named and left out; (3) the exit
status is 1 when a target was measured and missed.
Not here: how anything is measured (gateway_bench/).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gateway_bench.children import Children, Cores, allow_many_files
from gateway_bench.endurance import CALLS_PER_SESSION, endure, judge_endurance
from gateway_bench.peer import MissingError
from gateway_bench.peers import PEERS
from gateway_bench.rounds import QUICK, Loads, Neighbours, Pace, measure
from gateway_bench.streams import hold_streams, judge_streams
from gateway_bench.subjects import Subject, start_subject, start_upstream
from gateway_bench.table import as_json, endurance_markdown, markdown, streams_markdown
from gateway_bench.targets import Verdict, judge

OPEN_FILES = 16_384
# A gateway has both sides of a stream open.
FILES_PER_STREAM = 2
SPARE_FILES = 200


def main() -> int:
    """Run what the arguments ask for; print the figures and the verdicts."""
    arguments = _parser().parse_args()
    allow_many_files(OPEN_FILES)
    part = _streams if arguments.streams else _calls if arguments.calls else _compare
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder, Children() as children:
        verdicts = part(arguments, children, Cores.of_this_machine(), Path(folder))
    aside = sys.stderr if arguments.json else sys.stdout
    print(file=aside)
    for verdict in verdicts:
        print(verdict.line(), file=aside)
    return 1 if any(verdict.met is False for verdict in verdicts) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="three short rounds of c1 and c32; installs nothing"
    )
    parser.add_argument("--json", action="store_true", help="every figure as JSON, not as a table")
    parser.add_argument("--peers", nargs="+", choices=PEERS, help="only these beside `direct`")
    parser.add_argument("--rounds", type=int, help="rounds of the comparison (default: 3)")
    parser.add_argument("--seconds", type=float, help="length of one measurement (default: 2)")
    parser.add_argument(
        "--streams", type=int, nargs="?", const=5_000, help="hold so many slow streams instead"
    )
    parser.add_argument("--hold", type=int, default=60, help="for so many seconds (default: 60)")
    parser.add_argument("--calls", type=int, help="watch memory over so many calls instead")
    parser.add_argument(
        "--calls-per-session",
        type=int,
        default=CALLS_PER_SESSION,
        help="of each session in --calls (default: %(default)s); 1: every call has its own",
    )
    return parser


def _pace(arguments: argparse.Namespace) -> Pace:
    usual = QUICK if arguments.quick else Pace()
    return Pace(
        rounds=arguments.rounds or usual.rounds,
        seconds=arguments.seconds or usual.seconds,
        warm_seconds=usual.warm_seconds,
        cap=usual.cap,
        connections=usual.connections,
    )


def _compare(
    arguments: argparse.Namespace, children: Children, cores: Cores, state: Path
) -> list[Verdict]:
    upstream = start_upstream(children, cores, state)
    others = _start_all(
        arguments.peers or list(PEERS), upstream, children, cores, state, quick=arguments.quick
    )
    subjects = [upstream, *others]
    neighbours = Neighbours()
    figures = measure(subjects, _pace(arguments), Loads(cores), _tell)
    used_by_others = neighbours.share()
    verdicts = judge(figures)
    if arguments.json:
        print(as_json(figures, subjects, verdicts, used_by_others))
    else:
        print(markdown(figures, subjects, used_by_others))
    return verdicts


def _streams(
    arguments: argparse.Namespace, children: Children, cores: Cores, state: Path
) -> list[Verdict]:
    wanted: int = arguments.streams
    allowed = allow_many_files(OPEN_FILES)
    if allowed < FILES_PER_STREAM * wanted + SPARE_FILES:
        words = f"only {allowed:,} files may be open here; raise that with ulimit -n"
        return [Verdict(None, f"{wanted:,} slow streams: not measured: {words}")]
    names = arguments.peers or ["nginx", "jackline"]
    readings = hold_streams(wanted, arguments.hold, names, children, cores, state, _tell)
    if arguments.json:
        print(json.dumps({name: reading.to_json() for name, reading in readings.items()}, indent=1))
    else:
        print(streams_markdown(readings))
    return judge_streams(readings.get("jackline"), wanted)


def _calls(
    arguments: argparse.Namespace, children: Children, cores: Cores, state: Path
) -> list[Verdict]:
    try:
        reading = endure(arguments.calls, arguments.calls_per_session, children, cores, state)
    except MissingError as missing:
        return [Verdict(None, f"memory over calls: not measured: {missing}")]
    if arguments.json:
        print(json.dumps(reading.to_json(), indent=1))
    else:
        print(endurance_markdown(reading))
    return judge_endurance(reading, arguments.calls)


def _start_all(
    names: Sequence[str],
    upstream: Subject,
    children: Children,
    cores: Cores,
    state: Path,
    *,
    quick: bool,
) -> list[Subject]:
    running = []
    for name in names:
        try:
            _make_sure_of(name, quick=quick)
            _tell(f"starting {name}")
            running.append(start_subject(PEERS[name], upstream, children, cores, state))
        except MissingError as missing:
            _tell(f"left out: {name}: {missing}")
    return running


def _make_sure_of(name: str, *, quick: bool) -> None:
    peer = PEERS[name]
    if peer.installed():
        return
    if quick and name != "nginx":
        raise MissingError("not installed; a run without --quick installs it")
    _tell(f"installing {name} (once)")
    peer.install()


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
