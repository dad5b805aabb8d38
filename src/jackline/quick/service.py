"""Find the running service by its state folder, and send it one short request, with little loaded.

Rules: (1) the folder is the one that the whole configuration would name, and a test compares the
two: --state, JACKLINE_STATE, `state` in the file that JACKLINE_CONFIG names or else in the user's
own, the system's default; never a project's file, which may be a stranger's; (2) whatever is wrong
means that no service is known: also a file that others can have written, and an address that is
neither loopback nor the configured one; (3) a request never takes longer than its limit:
connecting, proof, sending and reading together; anything but a whole answer with status 200 is
None; (4) nothing is sent before the service has proved to be this user's; no proxy is used, and
nothing is written.
"""

from __future__ import annotations

import os
import time

# What `socket` is built on, and a third of a hook's time quicker to load.
from _socket import AF_INET, AF_INET6, SOCK_STREAM, socket

from jackline.gateway_proof import (
    is_token,
    prove,
    whole_answer,
)
from jackline.local_address import authority_of, host_and_port, is_loopback
from jackline.private_files import (
    check_private_folder,
    default_config_folder,
    default_state_folder,
    installation_key,
    read_private,
)

_FILE = "jackline.toml"
_PROJECT = "pyproject.toml"
_LARGEST_FILE = 64 * 1024
_LARGEST_ANSWER = 4 << 20


class ServiceInfo:
    """Where a service is, as it has written into its state folder."""

    __slots__ = ("folder", "host", "port", "token")

    def __init__(self, folder: str, host: str, port: int, token: str) -> None:
        self.folder = folder
        self.host = host
        self.port = port
        self.token = token

    def ask(
        self, path: str, body: bytes | None = None, *, seconds: float, processes: str = ""
    ) -> bytes | None:
        """What the service answers to this path; None if it does not, in time and correctly.

        `processes` are the numbers of those that called us, the nearest first.
        """
        until = time.monotonic() + seconds
        method = "GET" if body is None else "POST"
        authority = authority_of(self.host, self.port)
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {authority}\r\nx-jackline-control: {self.token}\r\n"
            f"x-jackline-processes: {processes}\r\n"
            f"connection: close\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body or b'')}\r\n\r\n"
        )
        line = socket(AF_INET6 if ":" in self.host else AF_INET, SOCK_STREAM)
        try:
            line.settimeout(seconds)
            line.connect((self.host, self.port))
            prove(line, authority, installation_key(make=False), until)
            request = head.encode("latin-1") + (body or b"")
            status, answer = whole_answer(line, request, until, _LARGEST_ANSWER)
        except OSError:
            return None
        finally:
            line.close()
        return answer if status == 200 else None


def find_service(arguments: list[str]) -> ServiceInfo | None:
    """The service of these arguments and this environment, if one left its file."""
    folder = state_folder(arguments)
    try:
        check_private_folder(folder)
        path = os.path.join(folder, "gateway.json")  # noqa: PTH118 -- pathlib costs more than all of this
        text = read_private(path, _LARGEST_FILE).decode()
        host, port = host_and_port(_text_in(text, "url"))
        token = _text_in(text, "token")
    except (OSError, ValueError):
        return None
    if not is_token(token):
        return None
    if not is_loopback(host):
        # Then it has to be the address that the user has the service listen on.
        configured: object = os.environ.get("JACKLINE_LISTEN_HOST")
        if not configured:
            listen = _table_in(_users_file()).get("listen")
            configured = listen.get("host") if isinstance(listen, dict) else None
        if host != configured:
            return None
    return ServiceInfo(folder, host, port, token)


def _text_in(document: str, name: str) -> str:
    """The text under this name in the service's own JSON; ValueError if there is none.

    Loading `json` would take a quarter of a hook's time, and these texts have nothing to unescape.
    """
    _, mark, rest = document.partition(f'"{name}": "')
    text, end, _ = rest.partition('"')
    if not mark or not end or "\\" in text:
        raise ValueError(name)
    return text


def state_folder(arguments: list[str]) -> str:
    """Where the service keeps its state."""
    named = ""
    for place, argument in enumerate(arguments):
        if argument == "--state" and place + 1 < len(arguments):
            named = arguments[place + 1]
            break
        if argument.startswith("--state="):
            named = argument.partition("=")[2]
            break
    named = named or os.environ.get("JACKLINE_STATE", "").strip()
    if named:
        return _path_from(None, named)
    path = _users_file()
    state = _table_in(path, b"state").get("state")
    if not isinstance(state, str) or not state:
        return default_state_folder()
    return _path_from(os.path.dirname(path), state)  # noqa: PTH120


def _users_file() -> str:
    """The file that the user named, or else the user's own; never one that lies in a project."""
    named = os.environ.get("JACKLINE_CONFIG")
    return _path_from(None, named) if named else os.path.join(default_config_folder(), _FILE)  # noqa: PTH118


def _table_in(path: str, word: bytes = b"") -> dict[str, object]:
    """Our table in a file of the user's; one that cannot hold `word` is not even parsed."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            text = file.read()
    except OSError:
        return {}
    if word not in text and b"\\" not in text:
        return {}
    import tomllib  # noqa: PLC0415 -- most have nothing to say

    try:
        whole = tomllib.loads(text.decode())
        table = whole["tool"]["jackline"] if os.path.basename(path) == _PROJECT else whole  # noqa: PTH119
    except (ValueError, KeyError, TypeError, RecursionError):  # no TOML, or nothing of ours in it
        return {}
    return table if isinstance(table, dict) else {}


def _path_from(folder: str | None, text: str) -> str:
    """An absolute path: `~` is the home folder; relative to `folder`, or the working folder."""
    if folder is None:
        try:
            folder = os.getcwd()  # noqa: PTH109
        except OSError:
            folder = ""  # the working folder is gone: only what is relative to it is lost
    return os.path.normpath(os.path.join(folder, os.path.expanduser(text)))  # noqa: PTH111, PTH118
