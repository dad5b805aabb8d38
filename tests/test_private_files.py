"""Only files that nobody else can have written are used."""

from __future__ import annotations

import hmac
import os
import threading
from pathlib import Path

import platformdirs
import pytest

from jackline import private_files
from jackline.private_files import (
    NotPrivateError,
    check_private_file,
    check_private_folder,
    installation_key,
    is_signature,
    make_private_folder,
    open_private,
    read_private,
    signature,
    write_private,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="modes are POSIX's")


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))


def test_the_default_folders_are_those_of_platformdirs() -> None:
    state = platformdirs.user_state_path("jackline", appauthor=False)
    config = platformdirs.user_config_path("jackline", appauthor=False)
    assert Path(private_files.default_state_folder()) == state
    assert Path(private_files.default_config_folder()) == config


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_a_folder_that_others_can_write_to_is_refused_with_a_fix_that_works(
    tmp_path: Path, mode: int
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(NotPrivateError) as refused:
        make_private_folder(folder)
    assert os.system(refused.value.fix) == 0  # noqa: S605 -- the advice must work as it stands
    check_private_folder(folder)


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
def test_a_folder_that_others_could_only_read_is_closed_and_used(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    check_private_folder(folder)
    assert folder.stat().st_mode & 0o777 == mode, "looking changes nothing"
    make_private_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_in_one_that_everybody_may_write_to_is_refused(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    inner = outer / "between" / "inner"
    make_private_folder(inner)
    outer.chmod(0o777)
    with pytest.raises(NotPrivateError, match="can be replaced"):
        check_private_folder(inner)
    outer.chmod(0o1777)  # like /tmp: what is there belongs to whoever made it
    check_private_folder(inner)


def test_a_file_that_others_can_have_written_is_not_read(tmp_path: Path) -> None:
    good, link, hard, loose = (tmp_path / name for name in ("good", "li'nk", "hard", "loose"))
    write_private(good, b"mine")
    assert read_private(good) == b"mine"
    link.symlink_to(good)
    write_private(loose, b"mine")
    loose.chmod(0o620)
    for bad in (link, loose):
        with pytest.raises(NotPrivateError):
            check_private_file(bad)
    with pytest.raises(NotPrivateError):
        read_private(link)
    with pytest.raises(NotPrivateError) as refused:
        read_private(loose)
    assert os.system(refused.value.fix) == 0  # noqa: S605 -- the advice must work as it stands
    assert read_private(loose) == b"mine"
    hard.hardlink_to(good)
    with pytest.raises(NotPrivateError, match="second name") as refused:
        read_private(good)
    assert os.system(refused.value.fix.partition("to keep it: ")[2]) == 0  # noqa: S605
    assert read_private(good) == b"mine"
    with pytest.raises(FileNotFoundError):
        read_private(tmp_path / "none")
    check_private_file(tmp_path / "none")


def test_a_file_that_others_could_only_read_is_closed_and_used(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for look in (read_private, check_private_file):
        write_private(path, b"mine")
        path.chmod(0o644)
        look(path)
        assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(NotPrivateError):
        read_private(path, close_to_others=False)


def test_a_pipe_or_a_huge_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_APPEND):
        with pytest.raises(NotPrivateError, match="not a regular file"):
            open_private(pipe, flags)
    big = tmp_path / "big"
    write_private(big, b"")
    with big.open("r+b") as file:
        file.truncate(1 << 20)
    with pytest.raises(OSError, match="too large"):
        read_private(big, 100)


@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="needs root to give files away")
def test_a_file_of_another_user_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    write_private(path, b"planted")
    os.chown(path, 12345, 12345)
    with pytest.raises(NotPrivateError, match="belongs to another user"):
        read_private(path)
    folder = tmp_path / "folder"
    make_private_folder(folder)
    os.chown(folder, 12345, 12345)
    with pytest.raises(NotPrivateError, match="belongs to another user"):
        check_private_folder(folder)


def test_writing_replaces_a_planted_link_and_leaves_its_target_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (tmp_path / "file").symlink_to(target)
    write_private(tmp_path / "file", b"new")
    assert target.read_text() == "untouched"
    assert read_private(tmp_path / "file") == b"new"
    (tmp_path / "log").symlink_to(target)
    with pytest.raises(NotPrivateError):
        open_private(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "log", "target"]


def test_all_processes_of_a_user_sign_with_one_key(tmp_path: Path) -> None:
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(installation_key())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert len(set(found)) == 1
    assert [path.name for path in (tmp_path / "home" / "jackline-key").iterdir()] == [
        "installation.key"
    ]


def test_a_key_whose_maker_died_at_the_last_step_is_used(tmp_path: Path) -> None:
    key = installation_key()
    folder = tmp_path / "home" / "jackline-key"
    (folder / "installation.key.0011.new").hardlink_to(folder / "installation.key")
    (folder / "installation.key.0022.new").write_bytes(b"of one that is at work")
    assert installation_key() == key
    assert sorted(path.name for path in folder.iterdir()) == [
        "installation.key",
        "installation.key.0022.new",
    ]


def test_a_key_that_others_could_read_is_refused_and_looking_makes_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        installation_key(make=False)
    key = installation_key()
    assert installation_key(make=False) == key
    path = tmp_path / "home" / "jackline-key" / "installation.key"
    path.chmod(0o640)
    with pytest.raises(NotPrivateError) as refused:
        installation_key()
    assert os.system(refused.value.fix) == 0  # noqa: S605 -- the advice must work as it stands
    assert installation_key() == key
    path.write_bytes(b"short")
    with pytest.raises(NotPrivateError, match="damaged") as refused:
        installation_key()
    assert os.system(refused.value.fix) == 0  # noqa: S605
    assert installation_key() != key


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 1000])
def test_a_signature_is_the_hmac_of_the_standard_library(length: int) -> None:
    key, part = os.urandom(private_files.KEY_BYTES), os.urandom(length)
    message = b"5:reset%d:%b" % (length, part)
    assert signature(key, "reset", part) == hmac.new(key, message, "sha256").hexdigest()


def test_a_signature_fits_its_own_purpose_and_parts_only() -> None:
    key = bytes(32)
    given = signature(key, "release", b"a", b"bc")
    assert is_signature(key, given, "release", b"a", b"bc")
    assert not is_signature(key, given, "release", b"ab", b"c")
    assert not is_signature(key, given, "flow", b"a", b"bc")
    assert not is_signature(b"x" * 32, given, "release", b"a", b"bc")
    assert not is_signature(key, "é", "release", b"a", b"bc")
    assert not is_signature(key, "", "release", b"a", b"bc")


def test_a_whole_state_folder_brings_no_key_of_its_own(tmp_path: Path) -> None:
    planted = tmp_path / "home" / "jackline"
    make_private_folder(planted)
    write_private(planted / "installation.key", bytes(32))
    assert installation_key() != bytes(32)


def test_a_new_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut leaves the old one or the new one, and never an empty key."""
    synced: list[list[str]] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(sorted(each.name for each in tmp_path.rglob("*.*")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write_private(tmp_path / "salt.own", b"new")
    assert [name.endswith(".new") for (name,) in synced] == ([True, False], [True])[os.name == "nt"]
    synced.clear()
    for name in ("XDG_STATE_HOME", "HOME", "LOCALAPPDATA", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    installation_key()
    assert len(synced) == (1 if os.name == "nt" else 2)
