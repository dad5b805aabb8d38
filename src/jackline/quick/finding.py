"""Find the running service from what it left in its state folder, without loading the house.

Laws: (1) the folder is the one that the whole configuration would name: --state, JACKLINE_STATE, a
`state` in the files, the system's default; (2) whatever is wrong means: no service is known; that
includes a file that others can have written, and an address that is neither of the loopback nor the
configured one; (3) only reading.
Not here: whether it answers (asking.py), reading all of a configuration (config/).
"""

from __future__ import annotations

import os

from jackline.gateway_proof import host_and_port, is_loopback, is_token
from jackline.private_files import (
    check_private_folder,
    default_config_folder,
    default_state_folder,
    read_private,
)

_FILE = "jackline.toml"
_PROJECT = "pyproject.toml"
_LARGEST_WORD = 64 * 1024


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
        check_private_folder(folder)
        path = os.path.join(folder, "gateway.json")  # noqa: PTH118 -- pathlib costs more than all of this
        told = read_private(path, _LARGEST_WORD).decode()
        host, port = host_and_port(_text_in(told, "url"))
        token = _text_in(told, "token")
    except (OSError, ValueError):
        return None
    if not is_token(token) or not (is_loopback(host) or host == _configured_host()):
        return None
    return Word(folder, host, port, token)


def _configured_host() -> str:
    """The address that the user has the service listen on; only asked where it is no loopback."""
    named = os.environ.get("JACKLINE_LISTEN_HOST")
    if named:
        return named
    import tomllib  # noqa: PLC0415 -- most services listen on the loopback

    # A file that was named, or the user's own; never one that lies in a project.
    path = os.environ.get("JACKLINE_CONFIG") or os.path.join(default_config_folder(), _FILE)  # noqa: PTH118
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            table = tomllib.load(file)
        if path.endswith(_PROJECT):
            table = table["tool"]["jackline"]
        host = table["listen"]["host"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return host if isinstance(host, str) else ""


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
    for place, argument in enumerate(arguments):
        if argument == "--state" and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith("--state="):
            return argument.partition("=")[2]
    return os.environ.get("JACKLINE_STATE") or _written_state() or default_state_folder()


def _written_state() -> str:
    """The `state` of the nearest file that has one; most have none, and are not even parsed."""
    named = os.environ.get("JACKLINE_CONFIG")
    if named:
        return _state_in(named)
    folder = os.getcwd()  # noqa: PTH109
    while True:
        for name in (_FILE, _PROJECT):
            found = _state_in(os.path.join(folder, name))  # noqa: PTH118
            if found:
                return found
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder:
            return _state_in(os.path.join(default_config_folder(), _FILE))  # noqa: PTH118
        folder = above


def _state_in(path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            text = file.read()
            owner = os.fstat(file.fileno()).st_uid
    except OSError:
        return ""
    project = path.endswith(_PROJECT)
    if b"state" not in text or (project and b"jackline" not in text):
        return ""
    if os.name != "nt" and owner not in (0, os.getuid()):
        return ""  # a stranger's file decides nothing, as in config/places.py
    import tomllib  # noqa: PLC0415 -- only where a state may be written

    try:
        table = tomllib.loads(text.decode())
        state = (table["tool"]["jackline"] if project else table)["state"]
    except (ValueError, KeyError, TypeError):  # no TOML, or nothing of ours in it
        return ""
    if not isinstance(state, str) or not state:
        return ""
    folder = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120
    return os.path.join(folder, os.path.expanduser(state))  # noqa: PTH111, PTH118
