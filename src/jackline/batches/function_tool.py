"""Make a tool of a typed Python function.

Rules: (1) the schema follows from the annotations, and arguments are checked against it before the
function sees them; (2) a blocking function runs in a thread of its own, and its output reaches the
loop's thread; (3) a parameter annotated `ToolContext` is filled by us, and the model never sees it.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_type_hints

from pydantic import Field, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_json

from jackline.batches.arguments import Arguments
from jackline.batches.threads import call_function, plain_function
from jackline.batches.tool import JsonObject, ToolContext, ToolOutput
from jackline.errors import BadArgumentError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_NAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class FunctionTool:
    """A Python function that a model may call; made by `function_tool`."""

    def __init__(
        self, function: Callable[..., object], *, name: str, description: str, read_only: bool
    ) -> None:
        self.name = name
        self.description = description
        self._function = function
        self._read_only = read_only
        self._parameters: list[tuple[inspect.Parameter, str | None]] = []
        """Each with the field of the arguments that holds its value; None: it gets the context."""
        fields: dict[str, Any] = {}
        hints = self._hints()
        for position, parameter in enumerate(inspect.signature(function).parameters.values()):
            hint = hints.get(parameter.name)
            if parameter.kind in _NOT_NAMED:
                raise BadArgumentError(
                    f"{name} takes `*{parameter.name}`, which a model cannot name",
                    hint="give the tool's function named parameters only",
                )
            if hint is None:
                raise BadArgumentError(
                    f"the parameter `{parameter.name}` of {name} has no annotation",
                    hint=f"say its type: {parameter.name}: str",
                )
            if hint is ToolContext:
                self._parameters.append((parameter, None))
                continue
            # Named by position and aliased: a parameter may be called `json` or `schema`, which
            # pydantic's own classes are too.
            field = f"p{position}"
            self._parameters.append((parameter, field))
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[field] = (hint, Field(default, alias=parameter.name))
        try:
            self._model = create_model(name, __base__=Arguments, **fields)
            self.input_schema = self._model.json_schema()
        except PydanticUserError as error:
            raise BadArgumentError(
                f"a parameter of {name} has a type that JSON cannot carry: {error.message}",
                hint="use str, int, float, bool, lists, dicts, dataclasses or pydantic models",
            ) from error

    def _hints(self) -> dict[str, object]:
        try:
            return get_type_hints(plain_function(self._function), include_extras=True)
        except NameError as error:
            raise BadArgumentError(
                f"the annotations of {self.name} name {error.name!r}, which cannot be found",
                hint="import that name where the function is defined, not only for type checking",
            ) from error

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """What whoever made the tool promised."""
        return self._read_only

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """What the function returned, as text."""
        values = self._model.checked(arguments)
        loop = asyncio.get_running_loop()

        def on_output(text: str) -> None:
            # The function may run in another thread, and longer than anybody listens.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(context.on_output, text)

        safe = replace(context, on_output=on_output)
        positional: list[object] = []
        named: dict[str, object] = {}
        for parameter, field in self._parameters:
            value = safe if field is None else getattr(values, field)
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
        return as_output(
            await call_function(lambda: self._function(*positional, **named), self._function)
        )


def function_tool(
    function: Callable[..., object],
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
) -> FunctionTool:
    """The function as a tool; `read_only` promises that calling it twice does no harm.

    UsageError when a model could not call it: a parameter without annotation, `*args`, a name that
    a model cannot say.
    """
    called = name or str(getattr(function, "__name__", type(function).__name__))
    if not _NAME.fullmatch(called):
        raise BadArgumentError(
            f"{called!r} cannot be the name of a tool",
            hint="give it one of letters, digits, '_' and '-': function_tool(…, name='look_up')",
        )
    text = description if description is not None else inspect.getdoc(function)
    text = text or f"Calls {called}."
    return FunctionTool(function, name=called, description=text, read_only=read_only)


def as_output(returned: object) -> ToolOutput:
    """What a function returned, as text for a model and as the value for Python."""
    if isinstance(returned, ToolOutput):
        return returned
    if returned is None:
        return ToolOutput()
    if isinstance(returned, str):
        return ToolOutput(returned, value=returned)
    try:
        rendered = to_json(returned, fallback=repr, inf_nan_mode="strings", bytes_mode="base64")
    except PydanticSerializationError:
        # It holds itself, say: the function has done its work, and that must not read as a crash.
        return ToolOutput(repr(returned), value=returned)
    return ToolOutput(rendered.decode(), value=returned)
