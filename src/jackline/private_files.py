"""Open files that only this user's account can have written, and sign records with its key.

Rules: (1) a file is private when it is a regular file with one name, owned by this user and closed
to everybody else; its folder likewise; (2) the last part of a path is never followed when it is a
link; (3) a new file gets a random name first and is moved into place whole; (4) a file that is not
private raises `NotPrivateError`, which says what to do about it, and none of its content is used;
(5) only the standard library is imported, because hooks load this module at every tool call.
Windows has access lists instead of modes: owner and mode are not checked there (SECURITY.md).
"""

from __future__ import annotations

import os
import stat
import sys

KEY_BYTES = 32
_KEY_FILE = "installation.key"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
_LARGEST = 64 << 20


class NotPrivateError(PermissionError):
    """A file or folder that somebody else can have written; `fix` is what to do about it."""

    def __init__(self, path: str, problem: str, fix: str) -> None:
        super().__init__(1, problem, path)
        self.problem = problem
        self.fix = fix


def default_state_folder() -> str:
    """The system's folder for this user's state, as platformdirs names it."""
    home = os.path.expanduser("~")  # noqa: PTH111 -- pathlib costs more than all of this
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")  # noqa: PTH118
        return os.path.join(local, "jackline")  # noqa: PTH118
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Application Support", "jackline")  # noqa: PTH118
    state = os.environ.get("XDG_STATE_HOME", "").strip()
    return os.path.join(state or os.path.join(home, ".local", "state"), "jackline")  # noqa: PTH118


def default_config_folder() -> str:
    """The system's folder for this user's configuration, as platformdirs names it."""
    if sys.platform in ("win32", "darwin"):
        return default_state_folder()
    home = os.path.expanduser("~")  # noqa: PTH111
    config = os.environ.get("XDG_CONFIG_HOME", "").strip()
    return os.path.join(config or os.path.join(home, ".config"), "jackline")  # noqa: PTH118


def make_private_folder(path: str | os.PathLike[str]) -> None:
    """Create the folder for this user alone, or check the one that is there."""
    os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103
    check_private_folder(path)


def check_private_folder(path: str | os.PathLike[str]) -> None:
    """Raise NotPrivateError unless only this user can put files there."""
    if os.name == "nt":
        return
    name = os.fspath(path)
    _check_owner(name, os.lstat(name), "folder")  # a link that somebody else made leads anywhere
    found = os.stat(name)  # noqa: PTH116
    _check_owner(name, found, "folder")
    if not stat.S_ISDIR(found.st_mode):
        raise NotPrivateError(name, "is not a folder", "choose another folder with --state")
    if found.st_mode & _OTHERS:
        problem = f"is open to other users of this machine (mode {stat.S_IMODE(found.st_mode):04o})"
        raise NotPrivateError(name, problem, f"chmod 700 {quoted(name)}")
    above = os.path.dirname(os.path.realpath(name))  # noqa: PTH120
    while True:
        mode = os.stat(above).st_mode  # noqa: PTH116
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            problem = f"can be replaced by other users: everybody may write to {above}"
            raise NotPrivateError(name, problem, f"chmod o-w {quoted(above)}")
        if above == os.path.dirname(above):  # noqa: PTH120
            return
        above = os.path.dirname(above)  # noqa: PTH120


def check_private_file(path: str | os.PathLike[str]) -> None:
    """Raise NotPrivateError unless the file is private; one that is not there is fine.

    For files that another library opens by name (SQLite). Its folder must have been checked.
    """
    name = os.fspath(path)
    try:
        found = os.lstat(name)
    except FileNotFoundError:
        return
    _check_file(name, found)


def open_private(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """A descriptor of a private file; with O_CREAT in `flags` it is made with mode 0600."""
    name = os.fspath(path)
    try:
        descriptor = os.open(name, flags | _NO_FOLLOW | _BINARY | _CLOSE_ON_EXEC, 0o600)
    except OSError:
        check_private_file(name)  # says more than "too many levels of symbolic links"
        raise
    try:
        _check_file(name, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_private(path: str | os.PathLike[str], most: int = _LARGEST) -> bytes:
    """All of a private file; OSError when it is missing, not private, or larger than `most`."""
    descriptor = open_private(path)
    try:
        size = os.fstat(descriptor).st_size
        if size > most:
            raise OSError(27, "is too large", os.fspath(path))
        parts = []
        while part := os.read(descriptor, 1 << 20):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def write_private(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace a file whole: a reader sees the old one or the new one."""
    name = os.fspath(path)
    fresh = _write_fresh(name, data)
    try:
        os.replace(fresh, name)  # noqa: PTH105
    except BaseException:
        os.unlink(fresh)  # noqa: PTH108
        raise


def installation_key() -> bytes:
    """The key that this user's installation signs with; made when it is first needed.

    It lies in the user's own state folder whatever `--state` says: a folder that somebody else
    prepared cannot bring its own key.
    """
    folder = default_state_folder()
    make_private_folder(folder)
    name = os.path.join(folder, _KEY_FILE)  # noqa: PTH118
    try:
        key = read_private(name, KEY_BYTES)
    except FileNotFoundError:
        fresh = _write_fresh(name, os.urandom(KEY_BYTES))
        try:
            os.link(fresh, name)
        except FileExistsError:
            pass  # another process was first: its key counts
        except OSError:
            os.replace(fresh, name)  # noqa: PTH105 -- a file system without hard links
            return read_private(name, KEY_BYTES)
        os.unlink(fresh)  # noqa: PTH108
        key = read_private(name, KEY_BYTES)
    if len(key) != KEY_BYTES:
        raise NotPrivateError(name, "is damaged", f"remove it: {quoted(name)}")
    return key


def signature(key: bytes, purpose: str, *parts: bytes) -> str:
    """The HMAC-SHA256 of these parts in hex; one made for another purpose never matches."""
    return _hmac(key, b"".join(b"%d:%b" % (len(part), part) for part in (purpose.encode(), *parts)))


def is_signature(key: bytes, given: str, purpose: str, *parts: bytes) -> bool:
    """Whether `given` is the signature of these parts, compared in constant time."""
    from _operator import _compare_digest  # noqa: PLC0415 -- `hmac` takes longer to load

    return given.isascii() and _compare_digest(given, signature(key, purpose, *parts))


def quoted(path: str) -> str:
    """The path as one word for a shell."""
    if path and all(letter.isalnum() or letter in "/._-+:@" for letter in path):
        return path
    return "'" + path.replace("'", "'\"'\"'") + "'"


def _hmac(key: bytes, message: bytes) -> str:
    try:
        from _hashlib import hmac_digest  # noqa: PLC0415 -- `hmac` takes longer to load
    except ImportError:  # a Python that was built without OpenSSL
        import hmac  # noqa: PLC0415

        return hmac.new(key, message, "sha256").hexdigest()
    return hmac_digest(key, message, "sha256").hex()


def _write_fresh(name: str, data: bytes) -> str:
    """Write a new private file beside `name`; its name is random, so nobody can prepare it."""
    fresh = f"{name}.{os.urandom(8).hex()}.new"
    descriptor = open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    except BaseException:
        os.close(descriptor)
        os.unlink(fresh)  # noqa: PTH108
        raise
    os.close(descriptor)
    return fresh


def _check_file(name: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        what = "a link" if stat.S_ISLNK(found.st_mode) else "not a regular file"
        raise NotPrivateError(
            name, f"is {what}", f"look where it came from, then: rm {quoted(name)}"
        )
    if os.name == "nt":
        return
    _check_owner(name, found, "file")
    if found.st_nlink > 1:
        problem = "has a second name somewhere else (a hard link)"
        raise NotPrivateError(name, problem, f"look where it came from, then: rm {quoted(name)}")
    if found.st_mode & _OTHERS:
        problem = f"is open to other users of this machine (mode {stat.S_IMODE(found.st_mode):04o})"
        raise NotPrivateError(name, problem, f"chmod 600 {quoted(name)}")


def _check_owner(name: str, found: os.stat_result, what: str) -> None:
    if found.st_uid != os.getuid():
        problem = f"belongs to another user (number {found.st_uid})"
        raise NotPrivateError(name, problem, f"choose another {what}, for example with --state")
