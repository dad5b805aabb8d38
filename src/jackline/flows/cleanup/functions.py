"""Name a Python function so that another process can call it, and find it again.

Laws: (1) only module-level functions have such a name; (2) one of the flow's own file is found
through the file, any other through its module; (3) no module is imported for one in the service's
process (user_code.py).
Not here: loading the flow's file (loading.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import cast

from jackline.errors import BadArgumentError, UnreadableError
from jackline.flows.user_code import check_user_code

_PREFIX = "function "


def action_words(given: object, flow_module: str) -> str:
    """A hook or release as it is kept: a command, or `function NAME`; UsageError for others."""
    if isinstance(given, str):
        if given.strip():
            return given
    elif callable(given):
        name, module = getattr(given, "__qualname__", ""), getattr(given, "__module__", "")
        if name and getattr(sys.modules.get(module), name, None) is given:
            return f"{_PREFIX}{name}" if module == flow_module else f"{_PREFIX}{module}:{name}"
    raise BadArgumentError(
        f"{getattr(given, '__qualname__', repr(given))} cannot clean up after a crash: "
        "the next process could not find it.",
        next="Give a shell command, or a function that stands at the top level of the flow's file.",
    )


def function_name(action: str) -> str | None:
    """The name of the function that an action means; None for a command."""
    return action.removeprefix(_PREFIX) if action.startswith(_PREFIX) else None


def find_function(name: str, flow_module: ModuleType | None) -> Callable[..., object]:
    """The function of that name."""
    module_name, _, own = name.rpartition(":")
    if not module_name:
        found = getattr(flow_module, own, None)
    else:
        check_user_code(f"{own}() of {module_name}")
        try:
            found = getattr(import_module(module_name), own, None)
        except ImportError as error:
            raise UnreadableError(f"{module_name} cannot be imported: {error}.") from error
    if not callable(found):
        raise UnreadableError(
            f"There is no function {own}() in {module_name or 'the flow’s file'} any more.",
            next="Put it back, or release by hand what it would have released.",
        )
    return cast("Callable[..., object]", found)
