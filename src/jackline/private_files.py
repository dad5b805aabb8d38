"""Open files that only this user's account can have written, and sign records with its key.

Rules: (1) a file is private when it is a regular file with one name, owned by this user and closed
to everybody else; its folder likewise, but it may be root's, and so may the folders above, in which
nobody else can replace it, by its mode or by a POSIX access list; (2) what others could only read
is closed to them and used, because nobody else can have written it (docs/decisions/045); (3) what
others could write, or what is not the user's, raises `NotPrivateError`, which says what to do about
it, and none of its content is used; (4) the last part of a path is never followed when it is a
link, and opening never waits for the other end of a pipe; (5) a new file gets a random name first
and is moved into place whole, once the disk has it; (6) only the standard library is imported,
because hooks load this module at every tool call.
Windows has access lists instead of modes: owner and mode are not checked there; nor are access
lists of macOS and of NFS (SECURITY.md).
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` and `types` are not loaded: hooks start with this module
    from types import ModuleType

KEY_BYTES = 32
_HASH_BLOCK = 64
_KEY_FILE = "installation.key"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
# A pipe in the place of a file must not keep us waiting; on files it changes nothing.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
# Of linux/posix_acl.h: entries that name a user or a group, and the mask over them.
_ACL_USER, _ACL_GROUP, _ACL_MASK, _ACL_WRITE = 2, 8, 16, 2
_LARGEST = 64 << 20
_MOST_LINKS = 40
_ELSEWHERE = "choose another folder with --state or JACKLINE_STATE"


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


def key_folder() -> str:
    """The folder of the installation key: beside the state folder, and never inside.

    Whoever is handed a whole state folder, from a backup or an archive, must not be handed a key
    that makes everything in it look like this installation's own.
    """
    return default_state_folder() + "-key"


def default_config_folder() -> str:
    """The system's folder for this user's configuration, as platformdirs names it."""
    if sys.platform in ("win32", "darwin"):
        return default_state_folder()
    home = os.path.expanduser("~")  # noqa: PTH111
    config = os.environ.get("XDG_CONFIG_HOME", "").strip()
    return os.path.join(config or os.path.join(home, ".config"), "jackline")  # noqa: PTH118


def own_number() -> int:
    """The number of this user's account; -1 on Windows, which has none."""
    number = getattr(os, "getuid", None)
    return -1 if number is None else int(number())


def make_private_folder(path: str | os.PathLike[str]) -> None:
    """Create the folder for this user alone, or check the one that is there and close it."""
    _make_folders(os.fspath(path))
    check_private_folder(path)
    if os.name == "nt":
        return
    found = os.stat(path)  # noqa: PTH116
    if found.st_mode & _OTHERS and found.st_uid == own_number():
        try:  # noqa: SIM105 -- loading contextlib takes longer than all of this
            os.chmod(path, 0o700)  # noqa: PTH101
        except OSError:
            pass  # a read-only disk: others may see the names of files, and no more


def check_private_folder(path: str | os.PathLike[str]) -> None:
    """Raise NotPrivateError unless only this user can put files there."""
    if os.name == "nt":
        return
    name = os.fspath(path)
    me = own_number()
    found = os.stat(name)  # noqa: PTH116
    # A link that somebody else made leads anywhere; root can put anything anywhere, as it is.
    for each in (os.lstat(name), found):
        if each.st_uid not in (0, me):
            problem = f"belongs to another user (number {each.st_uid})"
            raise NotPrivateError(name, problem, _ELSEWHERE)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(20, "is not a folder", name)
    if found.st_mode & _OTHERS_WRITE:
        mode = f"mode {stat.S_IMODE(found.st_mode):04o}"
        problem = f"can be written to by other users of this machine ({mode})"
        own = found.st_uid == me
        raise NotPrivateError(name, problem, f"chmod 700 {quoted(name)}" if own else _ELSEWHERE)
    for above in _folders_above(name):
        _check_above(name, above)


def _folders_above(name: str) -> list[str]:
    """Every folder in which a part of the path is looked up, with links followed one by one.

    NotPrivateError for a link of another user, who can lead it elsewhere at any time.
    """
    left = os.path.join(os.getcwd(), name).split(os.sep)[::-1]  # noqa: PTH109, PTH118, PTH206
    folders: list[str] = []
    links, at = 0, os.sep
    while left:
        part = left.pop()
        if part in ("", os.curdir):
            continue
        if part == os.pardir:
            at = os.path.dirname(at)  # noqa: PTH120
            continue
        if at not in folders:
            folders.append(at)
        path = os.path.join(at, part)  # noqa: PTH118
        found = os.lstat(path)
        if not stat.S_ISLNK(found.st_mode):
            at = path
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(40, "has too many links in its path", name)
        if not _is_trusted(found.st_uid):
            problem = f"can be replaced by another user (number {found.st_uid}), by the link {path}"
            raise NotPrivateError(name, problem, _ELSEWHERE)
        target = os.readlink(path)  # noqa: PTH115
        left += target.split(os.sep)[::-1]  # noqa: PTH206
        at = os.sep if os.path.isabs(target) else at  # noqa: PTH117
    return folders


def _check_above(name: str, above: str) -> None:
    """Raise unless nobody else can put another folder, or a link, in the place of what is there."""
    found = os.stat(above)  # noqa: PTH116
    if not _is_trusted(found.st_uid):
        problem = f"can be replaced by another user (number {found.st_uid}), who owns {above}"
        raise NotPrivateError(name, problem, _ELSEWHERE)
    if found.st_mode & stat.S_ISVTX:
        return  # others can put something beside it, and move only what is their own
    open_to = found.st_mode & _OTHERS_WRITE
    if open_to & stat.S_IWGRP and _is_own_group(found.st_gid):
        open_to &= ~stat.S_IWGRP
    who = "everybody" if open_to & stat.S_IWOTH else f"the group number {found.st_gid}"
    if not open_to:
        # Where there is an access list, the group's bits are the most that it gives to anybody.
        who = _writer_by_access_list(above) if found.st_mode & stat.S_IWGRP else ""
    if who:
        problem = f"can be replaced by other users: {who} may write to {above}"
        own = found.st_uid == own_number()
        raise NotPrivateError(name, problem, f"chmod go-w {quoted(above)}" if own else _ELSEWHERE)


def _writer_by_access_list(folder: str) -> str:
    """Whom its access list lets write there, beside this user; empty when nobody."""
    read = getattr(os, "getxattr", None)  # only Linux has it
    try:
        entries = b"" if read is None else read(folder, "system.posix_acl_access")[4:]
    except OSError:
        return ""  # it has none, or is on a disk that keeps none
    found = [entries[at : at + 8] for at in range(0, len(entries), 8)]
    numbers = [(each[0], each[2], int.from_bytes(each[4:], "little")) for each in found]
    most = next((may for kind, may, _ in numbers if kind == _ACL_MASK), 7)
    for kind, may, number in numbers:
        if not may & most & _ACL_WRITE:
            continue
        if kind == _ACL_USER and number not in (0, own_number()):
            return f"the user number {number}"
        if kind == _ACL_GROUP and not _is_own_group(number):
            return f"the group number {number}"
    return ""


def _is_trusted(owner: int) -> bool:
    """Whether it is root's or this user's, or of somebody who has no number here."""
    if owner in (0, own_number()):
        return True
    try:
        with open("/proc/sys/kernel/overflowuid") as file:  # noqa: PTH123
            overflow = file.read()
        with open("/proc/self/uid_map") as file:  # noqa: PTH123
            known = file.read()
    except OSError:
        return False
    return _is_without_number(owner, overflow, known)


def _is_without_number(owner: int, overflow: str, known: str) -> bool:
    """Whether the number stands for all owners that this sandbox has no number for.

    In one with numbers of its own (bubblewrap, rootless containers) the machine's root has none,
    and `/` belongs to the number that stands for such owners.
    """
    ranges = [list(map(int, line.split())) for line in known.splitlines()]
    return owner == int(overflow) and not any(
        first <= owner < first + count for first, _, count in ranges
    )


def _is_own_group(group: int) -> bool:
    """Whether nobody but this user is in it: many systems give each user a group of their name."""
    if sys.platform == "win32":
        return False
    import grp  # noqa: PLC0415 -- hooks do not need these, as a rule
    import pwd  # noqa: PLC0415

    try:
        me, found = pwd.getpwuid(own_number()), grp.getgrgid(group)
    except KeyError:
        return False
    alone = set(found.gr_mem) <= {me.pw_name}
    return alone and (found.gr_gid, found.gr_name) == (me.pw_gid, me.pw_name)


def check_private_file(path: str | os.PathLike[str]) -> None:
    """Raise NotPrivateError unless the file is private; one that is not there is fine.

    For files that another library opens by name (SQLite). Its folder must have been checked: only
    then nobody else can exchange the file before it is opened.
    """
    name = os.fspath(path)
    try:
        found = os.lstat(name)
    except FileNotFoundError:
        return
    _check_file(name, found, name)


def open_private(
    path: str | os.PathLike[str], flags: int = os.O_RDONLY, *, close_to_others: bool = True
) -> int:
    """A descriptor of a private file; with O_CREAT in `flags` it is made with mode 0600.

    Without `close_to_others` also a file that others could only read is refused: for secrets.
    """
    name = os.fspath(path)
    try:
        descriptor = os.open(name, flags | _NO_FOLLOW | _NO_WAIT | _BINARY | _CLOSE_ON_EXEC, 0o600)
    except OSError:
        check_private_file(name)  # says more than "too many levels of symbolic links"
        raise
    try:
        _check_file(name, os.fstat(descriptor), descriptor if close_to_others else None)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_private(
    path: str | os.PathLike[str], most: int = _LARGEST, *, close_to_others: bool = True
) -> bytes:
    """All of a private file; OSError when it is missing, not private, or larger than `most`."""
    descriptor = open_private(path, close_to_others=close_to_others)
    try:
        size = os.fstat(descriptor).st_size
        if size > most:
            raise OSError(27, "is too large", os.fspath(path))
        parts = []
        left = most + 1
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        if left <= 0:
            raise OSError(27, "is too large", os.fspath(path))
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
    _sync_folder(name)


def installation_key(*, make: bool = True) -> bytes:
    """The key that this user's installation signs with; made when it is first needed.

    It lies in a folder of its own (`key_folder`) whatever `--state` says: a folder that somebody
    else prepared cannot bring its own key. Without `make`, FileNotFoundError when there is none.
    """
    folder = key_folder()
    name = os.path.join(folder, _KEY_FILE)  # noqa: PTH118
    if make:
        make_private_folder(folder)
    else:
        check_private_folder(folder)
    try:
        key = _read_key(name)
    except FileNotFoundError:
        if not make:
            raise
        fresh = _write_fresh(name, os.urandom(KEY_BYTES))
        try:
            os.link(fresh, name)
        except FileExistsError:
            pass  # another process was first: its key counts
        except OSError:
            os.replace(fresh, name)  # noqa: PTH105 -- a file system without hard links
        try:  # noqa: SIM105 -- loading contextlib takes longer than all of this
            os.unlink(fresh)  # noqa: PTH108
        except FileNotFoundError:
            pass  # it was moved, or another process was first
        _sync_folder(name)
        key = _read_key(name)
    if len(key) != KEY_BYTES:
        raise NotPrivateError(name, "is damaged", f"rm {quoted(name)}")
    return key


def signature(key: bytes, purpose: str, *parts: bytes) -> str:
    """The HMAC-SHA256 of these parts in hex; one made for another purpose never matches."""
    message = b"".join(b"%d:%b" % (len(part), part) for part in (purpose.encode(), *parts))
    # By RFC 2104: `hmac` would load OpenSSL, which is a quarter of a hook's time.
    block = key.ljust(_HASH_BLOCK, b"\0")
    inner = _sha256(bytes(sign ^ 0x36 for sign in block) + message)
    return _sha256(bytes(sign ^ 0x5C for sign in block) + inner).hex()


def is_signature(key: bytes, text: str, purpose: str, *parts: bytes) -> bool:
    """Whether `text` is the signature of these parts, compared in constant time."""
    from _operator import _compare_digest  # noqa: PLC0415 -- `hmac` takes longer to load

    return text.isascii() and _compare_digest(text, signature(key, purpose, *parts))


def quoted(path: str) -> str:
    """The path as one word for a shell; control characters in it are written as escapes."""
    if not path.isprintable():
        letters = (
            letter
            if letter.isprintable() and letter not in "\\'"
            else "".join(f"\\x{octet:02x}" for octet in os.fsencode(letter))
            for letter in path
        )
        return f"$'{''.join(letters)}'"
    if path and all(letter.isalnum() or letter in "/._-+:@" for letter in path):
        return path
    return "'" + path.replace("'", "'\"'\"'") + "'"


def _make_folders(name: str) -> None:
    """As `os.makedirs`, but those above are the user's alone, too, whatever the umask is."""
    above = os.path.dirname(name)  # noqa: PTH120
    if above and not os.path.isdir(above):  # noqa: PTH112
        _make_folders(above)
    try:
        os.mkdir(name, 0o700)  # noqa: PTH102
    except FileExistsError:
        if not os.path.isdir(name):  # noqa: PTH112
            raise


def _read_key(name: str) -> bytes:
    try:
        return read_private(name, KEY_BYTES, close_to_others=False)
    except NotPrivateError:
        # Whoever made it is about to remove its first name, or died before that.
        folder, own = os.path.split(name)
        for other in os.listdir(folder):  # noqa: PTH208
            fresh = os.path.join(folder, other)  # noqa: PTH118
            if not other.startswith(f"{own}.") or not other.endswith(".new"):
                continue
            try:
                if os.path.samestat(os.lstat(fresh), os.lstat(name)):
                    os.unlink(fresh)  # noqa: PTH108
            except FileNotFoundError:
                pass  # it was moved, or another process was first
        return read_private(name, KEY_BYTES, close_to_others=False)


# Found once: Python searches the disk for a missing module each time.
_hash_modules: list[ModuleType] = []


def _sha256(data: bytes) -> bytes:
    if not _hash_modules:
        for name in ("_sha2", "_sha256", "hashlib"):  # since Python 3.12; before; without either
            try:
                _hash_modules.append(__import__(name))
                break
            except ImportError:
                continue
    digest: bytes = _hash_modules[0].sha256(data).digest()
    return digest


def _write_fresh(name: str, data: bytes) -> str:
    """Write a new private file beside `name`; its name is random, so nobody can prepare it."""
    fresh = f"{name}.{os.urandom(8).hex()}.new"
    descriptor = open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)  # before it gets its name: after a power cut it must not be empty
    except BaseException:
        os.close(descriptor)
        os.unlink(fresh)  # noqa: PTH108
        raise
    os.close(descriptor)
    return fresh


def _sync_folder(name: str) -> None:
    """Have the disk keep the name of a new file, as far as the system can."""
    if os.name == "nt":
        return
    folder = os.open(os.path.dirname(name) or os.curdir, os.O_RDONLY | _CLOSE_ON_EXEC)  # noqa: PTH120
    try:  # noqa: SIM105 -- loading contextlib takes longer than all of this
        os.fsync(folder)
    except OSError:
        pass  # some network folders refuse it; the file itself is written
    os.close(folder)


def _check_file(name: str, found: os.stat_result, closable: str | int | None) -> None:
    """Raise unless private; `closable` is what to change the mode of when others could read it."""
    if not stat.S_ISREG(found.st_mode):
        what = "a link" if stat.S_ISLNK(found.st_mode) else "not a regular file"
        away = "rm -r" if stat.S_ISDIR(found.st_mode) else "rm"
        raise NotPrivateError(
            name, f"is {what}", f"look where it came from, then: {away} {quoted(name)}"
        )
    if os.name == "nt":
        return
    word = quoted(name)
    if found.st_uid != own_number():
        problem = f"belongs to another user (number {found.st_uid})"
        raise NotPrivateError(name, problem, f"look where it came from, then: rm {word}")
    if found.st_nlink > 1:
        problem = "has a second name somewhere else (a hard link)"
        copy = quoted(f"{name}.own")
        raise NotPrivateError(
            name,
            problem,
            f"look where it came from; to keep it: cp {word} {copy} && mv {copy} {word}",
        )
    if not found.st_mode & _OTHERS:
        return
    problem = f"is open to other users of this machine (mode {stat.S_IMODE(found.st_mode):04o})"
    if closable is None or found.st_mode & _OTHERS_WRITE:
        raise NotPrivateError(name, problem, f"chmod 600 {word}")
    try:
        os.chmod(closable, 0o600)  # noqa: PTH101
    except OSError:
        raise NotPrivateError(name, problem, f"chmod 600 {word}") from None
