"""Find a flow in a Python file, freshly loaded each time.

Laws: (1) the file is run anew at each loading, under a name of its own, never as `__main__`; (2)
modules beside it can be imported as if it were run as a script; (3) it, and they, run as the very
bytes that were hashed, and unattended only if those are known (executed_sources.py); (4) nothing is
loaded in the service's process (user_code.py); (5) whatever is wrong is said with the file's name,
the line, and what to do.
Not here: running it (running.py), arguments (arguments.py).
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from jackline.errors import BadArgumentError, UnreadableError, UsageError
from jackline.flows.definition import Flow
from jackline.flows.executed_sources import SOURCES, CheckedLoader
from jackline.flows.user_code import check_user_code

_count = itertools.count()


def load_flow(reference: str) -> Flow[..., Any]:
    """The flow that `FLOW.py` or `FLOW.py:name` means."""
    file, name = split_reference(reference)
    module = load_module(file)
    flows = flows_of(module)
    if name:
        found = flows.get(name) or next((f for f in flows.values() if f.name == name), None)
        if found is None:
            raise BadArgumentError(
                f"There is no flow {name} in {file.name}.",
                next=f"It has these: {', '.join(flows)}." if flows else _MARK_ONE,
            )
        return found
    if len(flows) == 1:
        return next(iter(flows.values()))
    if not flows:
        raise BadArgumentError(f"There is no flow in {file.name}.", next=_MARK_ONE)
    raise BadArgumentError(
        f"{file.name} has several flows: {', '.join(flows)}.",
        next=f"Say which: {file.name}:{next(iter(flows))}.",
    )


_MARK_ONE = "Mark an async function at the top level of the file with @flow."


def split_reference(reference: str) -> tuple[Path, str]:
    """The file and the flow's name (empty when none is given)."""
    file, colon, name = reference.rpartition(":")
    # A lone drive letter is a Windows path, not a file and a name.
    if colon and len(file) > 1 and name.isidentifier():
        return Path(file), name
    return Path(reference), ""


def load_module(file: Path) -> ModuleType:
    """The module, run anew; UserCodeError in the service's process."""
    check_user_code(file.name)
    path = file.resolve()
    if not path.is_file():
        raise UnreadableError(
            f"There is no file {file}.", next="Give the path of a Python file: FLOW.py[:name]."
        )
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    mark = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"jackline_flow_{path.stem}_{mark}_{next(_count)}"
    SOURCES.watch()
    loader = CheckedLoader(name, str(path), is_flow=True)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise UnreadableError(f"{file.name} is no Python file.", next="Give a file ending in .py.")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pydantic look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except UsageError:
        sys.modules.pop(name, None)
        raise
    except Exception as error:
        sys.modules.pop(name, None)
        raise UnreadableError(
            f"{file.name} cannot be loaded: {_in_words(error, path)}.",
            next="Make `python -c 'import …'` of it work first.",
        ) from error
    return module


def flows_of(module: ModuleType) -> dict[str, Flow[..., Any]]:
    """The flows that a module defines itself, by the names they stand under."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, Flow) and value.function.__module__ == module.__name__
    }


def _in_words(error: Exception, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    where = f"line {lines[-1]}: " if lines else ""
    return f"{where}{type(error).__name__}: {str(error)[:200]}"
