"""Laws of functions as tools: schema from annotations, clear errors, own threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from jackline import event_loop
from jackline.batches.batch import run_batch
from jackline.batches.function_tool import FunctionTool, function_tool
from jackline.batches.tool import (
    BatchCall,
    CallResult,
    Tool,
    ToolContext,
    ToolFailedError,
    ToolOutput,
)
from jackline.errors import UsageError

HERE = ToolContext(Path("somewhere"))


class Place(BaseModel):
    """A city."""

    city: str
    title: str = ""


def weather(
    place: Place,
    days: Annotated[int, Field(ge=1, description="How many days.")] = 3,
    *,
    unit: Literal["C", "F"] = "C",
    json: bool = False,
    context: ToolContext,
) -> str:
    """Tells the weather.

    Slowly.
    """
    return f"{place.city} {days} {unit} {json} {context.call_id} {context.cwd}"


def call(tool: Tool, **arguments: object) -> CallResult:
    return event_loop.run(run_batch([BatchCall("c1", tool, arguments)], context=HERE))["c1"]


def test_the_schema_is_what_the_annotations_say_and_knows_nothing_of_the_context() -> None:
    tool = function_tool(weather)
    assert (tool.name, tool.description) == ("weather", "Tells the weather.\n\nSlowly.")
    properties = tool.input_schema["properties"]
    assert isinstance(properties, dict)
    assert list(properties) == ["place", "days", "unit", "json"]
    assert properties["days"] == {
        "default": 3,
        "description": "How many days.",
        "minimum": 1,
        "type": "integer",
    }
    assert tool.input_schema["required"] == ["place"]
    assert tool.input_schema["additionalProperties"] is False
    places = tool.input_schema["$defs"]
    assert isinstance(places, dict)
    assert list(places["Place"]["properties"]) == ["city", "title"]


def test_checked_arguments_reach_the_function_with_the_context() -> None:
    result = call(function_tool(weather), place={"city": "Kyiv"}, unit="F", json=True)
    assert result.text == "Kyiv 3 F True c1 somewhere"
    assert result.what.startswith("weather: {")


def test_arguments_that_do_not_fit_are_told_to_the_model_without_repeating_them() -> None:
    result = call(function_tool(weather), days=0, unit="hidden-words", more=1)
    error = result.error or ""
    assert "`place` is missing" in error
    assert "`days`: Input should be greater than or equal to 1" in error
    assert "`unit`: Input should be 'C' or 'F'" in error
    assert "`more` is not known" in error
    assert "It takes `place`, `days`, `unit`, `json`." in error
    assert "hidden-words" not in error
    assert result.ended_by == "bad arguments"


@dataclass
class Point:
    x: int
    on: date


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        (5, "5"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (Place(city="Łódź"), '{"city":"Łódź","title":""}'),
        (Point(1, date(2026, 1, 2)), '{"x":1,"on":"2026-01-02"}'),
        (float("nan"), '"NaN"'),
        (ToolOutput("own", exit_code=0), "own"),
    ],
)
def test_what_a_function_returns_becomes_text_or_json(value: object, text: str) -> None:
    def give() -> object:
        return value

    result = call(function_tool(give))
    assert (result.ok, result.text) == (True, text)


WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


def test_blocking_functions_run_side_by_side_in_threads_of_their_own() -> None:
    together = threading.Barrier(20, timeout=120)

    def meet(on_output: ToolContext) -> str:
        on_output.on_output("said")
        together.wait()
        return f"{WHO.get()} {threading.current_thread().name}"

    async def main() -> None:
        WHO.set("me")
        on_output: list[tuple[str, str]] = []
        told_on: set[int] = set()

        def emit(call_id: str, text: str) -> None:
            on_output.append((call_id, text))
            told_on.add(threading.get_ident())

        calls = [BatchCall(str(n), function_tool(meet), {}) for n in range(20)]
        report = await run_batch(calls, context=HERE, limit=20, on_output=emit)
        assert {result.text for result in report} == {"me jackline-meet"}
        assert sorted(on_output) == sorted((str(n), "said") for n in range(20))
        assert told_on == {threading.get_ident()}

    event_loop.run(main())


def test_functions_that_never_return_hold_up_nobody() -> None:
    free = threading.Event()

    def stuck() -> None:
        free.wait(60)

    def quick() -> str:
        return "done"

    async def main() -> None:
        calls = [BatchCall(f"s{n}", function_tool(stuck), {}, timeout=0.2) for n in range(40)]
        calls.append(BatchCall("quick", function_tool(quick), {}))
        report = await run_batch(calls, context=HERE, limit=100)
        assert report.summary.startswith("1 of 41 ok, 40 failed: stuck (timed out)")
        assert report["quick"].text == "done"

    event_loop.run(main())
    free.set()


def test_every_way_to_raise_is_a_result() -> None:
    def stop() -> None:
        raise StopIteration

    def leave() -> None:
        raise SystemExit(1)

    def fail() -> None:
        raise ToolFailedError("it rains", output="wet")

    async def cancel() -> None:
        raise asyncio.CancelledError

    assert call(function_tool(stop)).error == "crashed: RuntimeError: it raised StopIteration"
    assert "end the whole program" in (call(function_tool(leave)).error or "")
    assert (call(function_tool(fail)).error, call(function_tool(fail)).text) == ("it rains", "wet")
    assert call(function_tool(cancel)).error == "was cancelled from within"


class PanicError(BaseException):
    """What a library in Rust raises when it panics is no Exception either."""


def test_nothing_that_a_function_raises_ends_the_program_or_another_call() -> None:
    def panics() -> None:
        raise PanicError("index out of bounds")

    async def panics_later() -> None:
        raise PanicError

    def interrupts() -> None:
        raise KeyboardInterrupt

    async def leaves() -> None:
        raise SystemExit(2)

    def fine() -> str:
        return "done"

    async def main() -> None:
        functions = (panics, panics_later, interrupts, leaves, fine)
        calls = [BatchCall(each.__name__, function_tool(each), {}) for each in functions]
        report = await run_batch(calls, context=HERE)
        assert [result.error for result in report] == [
            "it raised PanicError: index out of bounds",
            "it raised PanicError",
            "it raised KeyboardInterrupt",
            "it tried to end the whole program (2)",
            None,
        ]

    event_loop.run(main())


def test_what_is_given_bit_by_bit_is_gathered_in_the_functions_own_thread() -> None:
    ran_in: list[str] = []

    def some(count: int) -> Iterator[int]:
        ran_in.append(threading.current_thread().name)
        yield from range(count)

    async def more(count: int) -> AsyncIterator[int]:
        for each in range(count):
            yield each

    assert call(function_tool(some), count=3).text == "[0,1,2]"
    assert ran_in == ["jackline-some"]
    assert call(function_tool(more), count=2).value == [0, 1]


def test_a_value_that_cannot_be_written_as_json_is_told_as_python_would() -> None:
    def circle() -> list[object]:
        made: list[object] = [1]
        made.append(made)
        return made

    told = call(function_tool(circle))
    assert (told.ok, told.text) == (True, "[1, [...]]")


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, by: int, /) -> int:
        """Adds."""
        self.count += by
        return self.count

    async def __call__(self, by: int) -> int:
        return self.add(by)


def test_methods_objects_partials_and_async_functions_are_functions_too() -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    def join(first: str, second: str) -> str:
        return first + second

    counter = Counter()
    assert call(function_tool(double), number=4).value == 8
    assert call(function_tool(counter.add), by=2).text == "2"
    assert call(function_tool(counter, name="counter"), by=3).text == "5"
    assert call(function_tool(partial(join, "a"), name="join"), second="b").text == "ab"
    assert call(function_tool(partial(double, 5), name="ten")).text == "10"


def test_read_only_is_what_was_promised() -> None:
    assert not function_tool(weather).read_only({})
    assert function_tool(weather, read_only=True).read_only({})


def unannotated(a):  # type: ignore[no-untyped-def]
    return a


def starred(*names: str) -> None:
    del names


def unnameable(lock: threading.Lock) -> None:
    del lock


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: function_tool(unannotated), "`a` of unannotated has no annotation"),
        (lambda: function_tool(starred), "takes `*names`"),
        (lambda: function_tool(lambda: 1), "cannot be the name of a tool"),
        (lambda: function_tool(weather, name="two words"), "cannot be the name of a tool"),
        (lambda: function_tool(unnameable), "a type that JSON cannot carry"),
    ],
)
def test_what_no_model_could_call_is_refused_at_once(
    make: Callable[[], FunctionTool], says: str
) -> None:
    with pytest.raises(UsageError) as raised:
        make()
    assert says in raised.value.message
    assert raised.value.hint
