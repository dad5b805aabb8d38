"""Make a tool of a typed Python function.

Rules: (1) the schema follows from the annotations, and arguments are checked against it before the
function sees them; (2) a blocking function runs in a thread of its own; (3) a parameter annotated
`ToolContext` is filled by us, and the model never sees it.
Not here: running tools side by side (batch.py).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_json

from jackline.batches.arguments import checked, schema_of
from jackline.batches.threads import call_function, on_loop_thread, plain_function
from jackline.batches.tool import JsonObject, ToolContext, ToolOutput
from jackline.errors import BadArgumentError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_NAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class FunctionTool:
    """A Python function that a model may call; made by `function_tool`."""

    def __init__(
        self,
        function: Callable[..., object],
        parameters: _Parameters,
        *,
        name: str,
        description: str,
        read_only: bool,
    ) -> None:
        self.name = name
        self.description = description
        self.input_schema = schema_of(parameters.model)
        self._function = function
        self._parameters = parameters
        self._read_only = read_only

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """What whoever made the tool promised."""
        return self._read_only

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """What the function returned, as text."""
        safe = replace(context, heard=on_loop_thread(context.heard))
        positional, named = self._parameters.bound(arguments, safe)
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
    return FunctionTool(
        function,
        _Parameters(function, called),
        name=called,
        description=text or f"Calls {called}.",
        read_only=read_only,
    )


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


class _Parameters:
    """How a function is called, as a model of pydantic."""

    def __init__(self, function: Callable[..., object], called: str) -> None:
        self._places: list[tuple[inspect.Parameter, str | None]] = []
        fields: dict[str, Any] = {}
        hints = _hints(function, called)
        for position, parameter in enumerate(inspect.signature(function).parameters.values()):
            hint = hints.get(parameter.name)
            _refuse(parameter, hint, called)
            if hint is ToolContext:
                self._places.append((parameter, None))
                continue
            # Named by position and aliased: a parameter may be called `json` or `schema`, which
            # pydantic's own classes are too.
            field = f"p{position}"
            self._places.append((parameter, field))
            fields[field] = (hint, _field(parameter))
        self.model = _model(called, fields)

    def bound(
        self, arguments: JsonObject, context: ToolContext
    ) -> tuple[list[object], dict[str, object]]:
        """Positional and named arguments, checked."""
        values = checked(self.model, arguments)
        positional: list[object] = []
        named: dict[str, object] = {}
        for parameter, field in self._places:
            value = context if field is None else getattr(values, field)
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
        return positional, named


def _model(called: str, fields: dict[str, Any]) -> type[BaseModel]:
    try:
        model: type[BaseModel] = create_model(
            called, __config__=ConfigDict(extra="forbid"), **fields
        )
        schema_of(model)
    except PydanticUserError as error:
        raise BadArgumentError(
            f"a parameter of {called} has a type that JSON cannot carry: {error.message}",
            hint="use str, int, float, bool, lists, dicts, dataclasses or pydantic models",
        ) from error
    return model


def _field(parameter: inspect.Parameter) -> object:
    if parameter.default is inspect.Parameter.empty:
        return Field(alias=parameter.name)
    return Field(parameter.default, alias=parameter.name)


def _hints(function: Callable[..., object], called: str) -> dict[str, object]:
    try:
        return get_type_hints(plain_function(function), include_extras=True)
    except NameError as error:
        raise BadArgumentError(
            f"the annotations of {called} name {error.name!r}, which cannot be found",
            hint="import that name where the function is defined, not only for type checking",
        ) from error


def _refuse(parameter: inspect.Parameter, hint: object, called: str) -> None:
    if parameter.kind in _NOT_NAMED:
        raise BadArgumentError(
            f"{called} takes `*{parameter.name}`, which a model cannot name",
            hint="give the tool's function named parameters only",
        )
    if hint is None:
        raise BadArgumentError(
            f"the parameter `{parameter.name}` of {called} has no annotation",
            hint=f"say its type: {parameter.name}: str",
        )
