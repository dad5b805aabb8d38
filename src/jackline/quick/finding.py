"""Find the running service from what it left in its state folder, without loading the house.

Laws: (1) the folder is the one that the whole configuration would name, and a test compares the
two: --state, JACKLINE_STATE, `state` in the file that JACKLINE_CONFIG names or else in the user's
own, the system's default; never a project's file, which may be a stranger's; (2) whatever is wrong
means: no service is known; (3) only reading.
Not here: whether it answers (asking.py), reading all of a configuration (config/).
"""

from __future__ import annotations

import os

from jackline.private_files import default_config_folder, default_state_folder

_FILE = "jackline.toml"
_PROJECT = "pyproject.toml"


class Word:
    """What a service left about itself."""

    __slots__ = ("folder", "host", "port", "token")

    def __init__(self, folder: str, host: str, port: int, token: str) -> None:
        self.folder = folder
        self.host = host
        self.port = port
        self.token = token


def word_of_service(arguments: list[str]) -> Word | None:
    """The service that these arguments and the environment mean, if one left its word."""
    folder = state_folder(arguments)
    try:
        with open(os.path.join(folder, "gateway.json"), "rb") as file:  # noqa: PTH118, PTH123 -- pathlib costs more than all of this
            told = file.read().decode()
        host, _, port = _text_in(told, "url").partition("//")[2].rpartition(":")
        return Word(folder, host.strip("[]"), int(port), _text_in(told, "token"))
    except (OSError, ValueError):
        return None


def _text_in(told: str, name: str) -> str:
    """The text under this name in the service's own JSON; ValueError if there is none.

    Loading `json` would take a quarter of a hook's time, and these texts have nothing to unescape.
    """
    _, mark, rest = told.partition(f'"{name}": "')
    text, end, _ = rest.partition('"')
    if not mark or not end or "\\" in text:
        raise ValueError(name)
    return text


def state_folder(arguments: list[str]) -> str:
    """Where the service keeps its state."""
    try:
        here = os.getcwd()  # noqa: PTH109
    except OSError:
        here = ""  # the working folder is gone: only what is relative to it is lost
    given = _flag(arguments) or os.environ.get("JACKLINE_STATE", "").strip()
    if given:
        return _path_from(here, given)
    named = os.environ.get("JACKLINE_CONFIG")
    own = os.path.join(default_config_folder(), _FILE)  # noqa: PTH118
    return _state_in(_path_from(here, named) if named else own) or default_state_folder()


def _flag(arguments: list[str]) -> str:
    for place, argument in enumerate(arguments):
        if argument == "--state" and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith("--state="):
            return argument.partition("=")[2]
    return ""


def _state_in(path: str) -> str:
    """The `state` that a file of the user's says; most say none, and are not even parsed."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            text = file.read()
    except OSError:
        return ""
    if b"state" not in text and b"\\" not in text:
        return ""
    import tomllib  # noqa: PLC0415 -- only where a state may be written

    try:
        table = tomllib.loads(text.decode())
        if os.path.basename(path) == _PROJECT:  # noqa: PTH119
            table = table["tool"]["jackline"]
        state = table["state"]
    except (ValueError, KeyError, TypeError, RecursionError):  # no TOML, or nothing of ours in it
        return ""
    if not isinstance(state, str) or not state:
        return ""
    return _path_from(os.path.dirname(path), state)  # noqa: PTH120


def _path_from(folder: str, text: str) -> str:
    """An absolute path: `~` is the home folder, anything relative is seen from `folder`."""
    return os.path.normpath(os.path.join(folder, os.path.expanduser(text)))  # noqa: PTH111, PTH118
