"""A model may run git by a pattern, in a repository that came with an archive or inside a clone.

Rules: those of this package. Git is the real one; each trap is first shown to work with plain git,
so that a test cannot pass because the trap is broken.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from jackline.flows.cleanup.action_runner import remove_if_clean
from jackline.foreign_repositories import repository_check
from jackline.mcp_server.batch_tools import batch_tools
from jackline.mcp_server.model_tool import ToolCaller
from jackline.mcp_server.permissions import BatchSettings, ToolSettings

pytestmark = pytest.mark.skipif(os.name == "nt", reason="shell scripts as the planted programs")

LOOKING = ("git *", "git help *", "head *")
IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")


@dataclass
class Unpacked:
    """A project folder with a repository, and a program outside that leaves a mark."""

    root: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.git("init", "--quiet", ".")
        self.write("file", "1\n")
        self.commit()
        self.program = self.root / "planted.sh"
        self.program.write_text(f"#!/bin/sh\ntouch '{self.mark}'\ncat \"$1\" 2>/dev/null\ntrue\n")
        self.program.chmod(0o755)

    @property
    def folder(self) -> Path:
        return self.root / "project"

    @property
    def mark(self) -> Path:
        return self.root / "ran"

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def git(self, *words: str, cwd: str = ".") -> str:
        done = subprocess.run(
            ["git", *IDENTITY, *words],
            cwd=self.folder / cwd,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, cwd: str = ".") -> None:
        self.git("add", ".", cwd=cwd)
        self.git("commit", "--quiet", "-m", "one", cwd=cwd)

    def config(self, *pairs: tuple[str, str], cwd: str = ".") -> None:
        for name, value in pairs:
            self.git("config", name, value, cwd=cwd)

    def hook(self, name: str, git_folder: str = ".git") -> None:
        hooks = self.folder / git_folder / "hooks"
        hooks.mkdir(exist_ok=True)
        (hooks / name).symlink_to(self.program)

    def plainly(self, command: str, cwd: str = ".") -> str:
        """What a plain shell gives, without any guard."""
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder / cwd,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout + done.stderr

    def batch(self, command: str, cwd: str = ".", allow: tuple[str, ...] = LOOKING) -> str:
        return batch_in(self.folder, command, cwd, allow)


def batch_in(folder: Path, command: str, cwd: str = ".", allow: tuple[str, ...] = LOOKING) -> str:
    """What a model is told that runs one command by the tool `batch`."""
    (tool,) = batch_tools(lambda: ToolSettings(batch=BatchSettings(allow)))
    call = {"id": "1", "tool": "shell", "input": {"command": command, "cwd": cwd}}

    async def main() -> str:
        return (await tool.run({"calls": [call]}, ToolCaller(folder=folder))).text

    return asyncio.run(main())


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unpacked:
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))
    return Unpacked(tmp_path)


def bare_with_textconv(here: Unpacked) -> None:
    """A clone can bring it: nothing in it is called `.git`."""
    (here.folder / "in").mkdir()
    here.git("clone", "--quiet", "--bare", ".", "in/inner")
    here.config(("diff.x.textconv", str(here.program)), cwd="in/inner")
    here.write("in/inner/info/attributes", "* diff=x\n")


def bare_with_monitor(here: Unpacked) -> None:
    here.git("init", "--quiet", "--bare", "in")
    settings = [("core.bare", "false"), ("core.worktree", str(here.folder))]
    here.config(*settings, ("core.fsmonitor", str(here.program)), cwd="in")


def viewer(here: Unpacked) -> None:
    here.config(("man.viewer", "x"), ("man.x.cmd", str(here.program)))


def browser(here: Unpacked) -> None:
    pages = here.root / "pages"
    pages.mkdir()
    for name in ("git-log.html", "git.html"):
        (pages / name).write_text("")
    settings = [("help.format", "html"), ("help.htmlpath", str(pages)), ("help.browser", "x")]
    here.config(*settings, ("browser.x.cmd", str(here.program)))


def lazy_fetch(here: Unpacked) -> None:
    missing = here.git("rev-parse", "HEAD:file")
    (here.folder / ".git" / "objects" / missing[:2] / missing[2:]).unlink()
    here.config(
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", f"ext::{here.program}"),
        ("remote.origin.promisor", "true"),
        ("protocol.ext.allow", "always"),
    )


def nested(here: Unpacked) -> None:
    """A repository in the repository, recorded as a submodule."""
    here.git("init", "--quiet", "nested")
    here.write("nested/file", "1\n")
    here.commit(cwd="nested")
    here.git("add", "nested")
    here.commit()
    here.write("nested/file", "2\n")


def nested_monitor(here: Unpacked) -> None:
    nested(here)
    here.config(("core.fsmonitor", str(here.program)), cwd="nested")


def nested_filter_that_must_not_be_ignored(here: Unpacked) -> None:
    nested(here)
    here.write("nested/.gitattributes", "* filter=x\n")
    here.config(("filter.x.clean", str(here.program)), cwd="nested")
    modules = '[submodule "nested"]\n\tpath = nested\n\turl = ./nested\n\tignore = none\n'
    here.write(".gitmodules", modules)


def nested_hook(here: Unpacked) -> None:
    nested(here)
    here.write(".gitmodules", '[submodule "n"]\n\tpath = nested\n\turl = ./n\n\tignore = none\n')
    here.git("update-index", "--force-remove", "file", cwd="nested")
    here.git("add", "file", cwd="nested")
    os.utime(here.folder / "nested" / "file", (1, 1))
    here.hook("post-index-change", "nested/.git")


def hook_of_looking(here: Unpacked) -> None:
    here.hook("post-index-change")
    os.utime(here.folder / "file", (1, 1))


def textconv_by_include(here: Unpacked) -> None:
    here.write(".gitattributes", "* diff=x\n")
    here.write("settings", f"[diff \"x\"]\n\ttextconv = '{here.program}'\n")
    here.config(("include.path", "../settings"))


def textconv_on_a_branch(here: Unpacked) -> None:
    textconv_by_include(here)
    here.git("config", "--unset", "include.path")
    here.config(("includeIf.onbranch:**.path", "../settings"))


def external_diff(here: Unpacked) -> None:
    here.write("file", "2\n")
    here.config(("diff.external", str(here.program)))


def signature(here: Unpacked) -> None:
    signed = here.root / "signed"
    body = here.git("cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n", 1
    )
    signed.write_text(body + "\n")
    made = here.git("hash-object", "-t", "commit", "-w", str(signed))
    here.git("update-ref", "HEAD", made)
    here.config(("gpg.program", str(here.program)), ("log.showSignature", "true"))


def trailer(here: Unpacked) -> None:
    here.config(("trailer.x.command", f"{here.program} #"))


Trap = Callable[[Unpacked], None]
TRAPS: list[tuple[Trap, str, str]] = [
    (bare_with_textconv, "git log -p", "in/inner"),
    (bare_with_monitor, "git status", "in"),
    (viewer, "git help log", "."),
    (browser, "git help log", "."),
    (lazy_fetch, "git log -p", "."),
    (nested_monitor, "git status", "."),
    (nested_monitor, "git diff", "."),
    (nested_filter_that_must_not_be_ignored, "git status", "."),
    (nested_hook, "git status", "."),
    (hook_of_looking, "git status", "."),
    (textconv_by_include, "git log -p", "."),
    (textconv_on_a_branch, "git log -p", "."),
    (external_diff, "git diff", "."),
    (signature, "git log", "."),
    (trailer, "git interpret-trailers --trailer x=1 file", "."),
]


@pytest.mark.parametrize(("trap", "command", "cwd"), TRAPS)
def test_git_starts_no_program_that_a_repository_names(
    trap: Trap, command: str, cwd: str, unpacked: Unpacked
) -> None:
    trap(unpacked)
    unpacked.plainly(command, cwd)
    assert unpacked.mark.exists(), "the trap does not work"
    unpacked.mark.unlink()
    trap_again(trap, unpacked)
    said = unpacked.batch(command, cwd, (*LOOKING, "git interpret-trailers --trailer x=1 file"))
    assert not unpacked.mark.exists(), said


def trap_again(trap: Trap, here: Unpacked) -> None:
    """A hook on a changed index works once for each change."""
    if trap in (hook_of_looking, nested_hook):
        os.utime(here.folder / ("file" if trap is hook_of_looking else "nested/file"), (2, 2))


@pytest.mark.parametrize(
    ("wrapped", "allow"),
    [
        ("env git log -p", "env git log *"),
        ("timeout 9 git log -p", "timeout 9 git log *"),
        ("nice git log -p", "nice git *"),
        ("git -C . log -p", "git -C . log *"),
        ("git --no-pager log -p", "git *"),
    ],
)
def test_git_behind_another_word_is_judged_all_the_same(
    wrapped: str, allow: str, unpacked: Unpacked
) -> None:
    textconv_by_include(unpacked)
    unpacked.plainly(wrapped)
    assert unpacked.mark.exists()
    unpacked.mark.unlink()
    assert "include.path" in unpacked.batch(wrapped, allow=(allow,))
    assert not unpacked.mark.exists()


def test_the_folder_that_is_judged_is_the_one_in_which_git_runs(unpacked: Unpacked) -> None:
    unpacked.git("init", "--quiet", "other")
    unpacked.write("other/file", "1\n")
    unpacked.write("other/.gitattributes", "* diff=x\n")
    unpacked.commit(cwd="other")
    unpacked.config(("diff.x.textconv", str(unpacked.program)), cwd="other")
    for words, allow in (
        ("git -C other log -p", "git -C other log *"),
        ("git --git-dir=other/.git log -p", "git --git-dir=other/.git log *"),
        ("git --git-dir other/.git log -p", "git --git-dir other/.git log *"),
        ("env GIT_DIR=other/.git git log -p", "env GIT_DIR=other/.git git log *"),
    ):
        said = unpacked.batch(words, allow=(allow,))
        assert "not allowed" in said, said
        assert not unpacked.mark.exists(), words


def test_words_that_another_program_gives_git_are_not_judged_and_so_not_allowed(
    unpacked: Unpacked,
) -> None:
    unpacked.write("words", "--output=.git/config\n")
    allow = ("xargs -a words git log -1", "xargs *")
    assert "not allowed" in unpacked.batch("xargs -a words git log -1", allow=allow)


def private(here: Unpacked) -> Path:
    """Another repository of the user's, beside the project."""
    other = here.root / "private"
    other.mkdir()
    here.git("init", "--quiet", str(other))
    (other / "notes").write_text("a secret\n")
    here.commit(cwd="../private")
    return other


def by_work_tree(here: Unpacked) -> None:
    other = private(here)
    (other / "file").write_text("a secret\n")
    here.config(("core.worktree", str(other)))


def by_link(here: Unpacked) -> None:
    other = private(here)
    (here.folder / ".git").rename(here.root / "away")
    (here.folder / ".git").symlink_to(other / ".git")


def by_file(here: Unpacked) -> None:
    other = private(here)
    (here.folder / ".git").rename(here.root / "away")
    here.write(".git", f"gitdir: {other / '.git'}\n")


def by_common_folder(here: Unpacked) -> None:
    here.write(".git/commondir", str(private(here) / ".git"))


def by_links_inside(here: Unpacked) -> None:
    other = private(here) / ".git"
    here.write(".git/objects/info/alternates", f"{other / 'objects'}\n")
    (here.folder / ".git" / "refs" / "heads" / "other").symlink_to(
        other / "refs" / "heads" / "main"
    )


@pytest.mark.parametrize("way", [by_work_tree, by_link, by_file, by_common_folder, by_links_inside])
def test_git_reads_no_other_repository_of_the_user(way: Trap, unpacked: Unpacked) -> None:
    way(unpacked)
    commands = ("git log -p --all", "git diff")
    assert any("a secret" in unpacked.plainly(command) for command in commands)
    for command in commands:
        said = unpacked.batch(command)
        assert "a secret" not in said
        assert "not allowed" in said


def test_repositories_that_git_itself_makes_are_looked_at(unpacked: Unpacked) -> None:
    """Worktrees beside the project, submodules, subfolders, clones that share objects inside."""
    here = unpacked
    here.git("worktree", "add", "--quiet", "../beside", "-b", "side")

    def log(folder: Path) -> str:
        return batch_in(folder, "git log --format=is-%s")

    assert "is-one" in log(here.root / "beside")
    here.write("part/file", "1")
    assert "is-one" in log(here.folder / "part")
    here.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../beside", "sub")
    assert "is-one" in here.batch("git log --format=is-%s", "sub")
    assert "is-one" in log(here.folder / "sub")
    said = here.batch("git status --short")
    assert "A  .gitmodules" in said
    here.git("clone", "--quiet", "--shared", ".", "shared")
    assert "is-one" in here.batch("git log --format=is-%s", "shared")


def test_a_submodule_at_another_commit_is_told(unpacked: Unpacked) -> None:
    nested(unpacked)
    unpacked.commit(cwd="nested")
    assert " M nested" in unpacked.batch("git status --short")


def test_a_circle_of_submodules_ends(unpacked: Unpacked) -> None:
    nested(unpacked)
    (unpacked.folder / "nested" / ".git").rename(unpacked.root / "away")
    unpacked.write("nested/.git", "gitdir: ../.git\n")
    (unpacked.folder / "nested" / "nested").symlink_to(".")
    assert "not allowed" in unpacked.batch("git status")


def test_where_there_is_no_repository_git_says_so(unpacked: Unpacked) -> None:
    (unpacked.folder / ".git").rename(unpacked.root / "away")
    assert "not a git repository" in unpacked.batch("git log")


def test_settings_that_cannot_be_read_are_a_refusal(unpacked: Unpacked) -> None:
    unpacked.write(".git/config", "[core\nfsmonitor = x\n")
    said = unpacked.batch("git status")
    assert "not allowed: git cannot read the settings of the repository" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("core.hooksPath", ".husky"),
        ("core.fsmonitor", "true"),
        ("remote.origin.url", "https://example.org/x.git"),
        ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.gh-resolved", "base"),
        ("branch.a.b.merge", "refs/heads/a.b"),
        ("branch.main.vscode-merge-base", "origin/main"),
        ("user.email", "me@example.org"),
        ("pull.rebase", "true"),
        ("pager.branch", "false"),
        ("submodule.x.url", "https://example.org/x.git"),
        ("submodule.x.update", "rebase"),
        ("blame.ignoreRevsFile", ".git-blame-ignore-revs"),
        ("lfs.repositoryformatversion", "0"),
        ("http.https://github.com/.extraheader", "X: y"),
        ("branch.main.gk-last-accessed", "2026-01-01T00:00:00.000Z"),
        ("branch.main.gk-merge-base", "origin/main"),
        ("branch.main.github-pr-owner-number", "me#x#1"),
        ("branch.main.gh-merge-base", "main"),
        ("remote.origin.glab-resolved", "base"),
        ("remote.origin.github-pr-remote", "true"),
        ("gitreview.username", "me"),
        ("diff.tool", "meld"),
        ("diff.guitool", "bc"),
        ("merge.tool", "vimdiff"),
        ("git-town.main-branch", "main"),
        ("git-town-branch.x.parent", "main"),
        ("checkout.workers", "8"),
        ("checkout.workers", "-1"),
        ("index.threads", "true"),
        ("fetch.parallel", "0"),
    ],
)
def test_usual_settings_of_a_repository_are_no_obstacle(
    name: str, value: str, unpacked: Unpacked
) -> None:
    unpacked.config((name, value))
    unpacked.write(".git-blame-ignore-revs", "")
    assert "is-one" in unpacked.batch("git log --format=is-%s")
    assert "1) 1" in unpacked.batch("git blame -s file")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpg.ssh.defaultKeyCommand", "x"),
        ("trailer.x.cmd", "x"),
        ("tar.x.command", "x"),
        ("submodule.x.update", "!x"),
        ("gc.recentObjectsHook", "x"),
        ("core.attributesFile", "/etc/passwd"),
        ("core.sshCommand", "x"),
        ("core.pager", "x"),
        ("pager.log", "x"),
        ("alias.x", "!x"),
        ("hook.x.command", "x"),
        ("uploadpack.packObjectsHook", "x"),
        ("remote.origin.uploadpack", "x"),
        ("http.proxy", "http://evil.example"),
        ("unheard.of", "x"),
        ("blame.ignoreRevsFile", "../secret"),
        ("extensions.refStorage", "reftable://x"),
        ("checkout.workers", "10000"),
        ("checkout.workers", "1k"),
        ("fetch.parallel", "10000"),
        ("submodule.fetchJobs", "10000"),
        ("pack.threads", "10000"),
        ("index.threads", "10000"),
        ("diff.tool", "../../../../tmp/x"),
        ("merge.tool", ".."),
        ("mergetool.x.cmd", "x"),
        ("difftool.x.path", "x"),
        ("branch.main.gk", "x"),
        ("branch.main.mergeOptions", "-s x"),
        ("remote.origin.gk-x.vcs", "x"),
    ],
)
def test_every_other_setting_is_named_and_git_not_started(
    name: str, value: str, unpacked: Unpacked
) -> None:
    unpacked.config((name, value))
    said = unpacked.batch("git log")
    assert "not allowed" in said
    assert name.lower() in said.lower()


@pytest.mark.parametrize("name", ["diff.tool", "diff.guitool", "merge.tool", "merge.guitool"])
def test_the_name_of_a_tool_is_no_leave_to_start_it(name: str, unpacked: Unpacked) -> None:
    verb = "mergetool" if name.startswith("merge") else "difftool"
    unpacked.config((name, "vimdiff"))
    unpacked.write("file", "2\n")
    for command in (f"git {verb}", f"git {verb} --no-prompt", f"git --no-pager {verb} file"):
        said = unpacked.batch(command, allow=("git *", f"git {verb} *", "git --no-pager *"))
        assert "not allowed" in said, command
    said = allow_only(unpacked, f"git {verb}")
    assert "not allowed" in said
    assert name in said
    assert "all 1 ok" in allow_only(unpacked, "git add -A")


def test_the_advice_about_a_setting_works(unpacked: Unpacked) -> None:
    unpacked.config(("diff.it's.command", "!x"), ("core.notes", "1"))
    unpacked.git("config", "extensions.worktreeConfig", "true")
    unpacked.git("config", "--worktree", "alias.two", "!x")
    for _ in range(3):
        said = unpacked.batch("git log")
        assert "not allowed" in said
        unpacked.plainly(said.partition("take it out: ")[2].partition(" (batch.allow")[0])
    assert "one" in unpacked.batch("git log")


def test_a_hook_is_neither_run_nor_left_out_without_a_word(unpacked: Unpacked) -> None:
    unpacked.hook("pre-commit")
    unpacked.write("file", "2\n")
    command = "git -c user.name=t -c user.email=t commit -a -m two"
    allow = ("git *", "git add file", command)
    for looking in ("git stash list", "git branch --show-current", "git add file"):
        assert "all 1 ok" in unpacked.batch(looking, allow=allow)
    said = unpacked.batch(command, allow=allow)
    assert "not allowed: the repository has a hook, pre-commit" in said
    assert not unpacked.mark.exists()
    (unpacked.folder / ".git" / "hooks" / "pre-commit").unlink()
    assert "two" in unpacked.batch(command, allow=allow)


def test_hooks_run_where_the_user_has_written_out_which(unpacked: Unpacked) -> None:
    unpacked.hook("pre-commit")
    unpacked.write("file", "2\n")
    words = "git -c user.name=t -c user.email=t -c core.hooksPath=.git/hooks commit -a -m two"
    said = unpacked.batch(words, allow=(words,))
    assert "two" in said
    assert unpacked.mark.exists()


def test_hooks_of_the_users_own_for_all_repositories_run(
    unpacked: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = unpacked.root / "own"
    own.mkdir()
    (own / "pre-commit").symlink_to(unpacked.program)
    settings = unpacked.root / "gitconfig"
    settings.write_text(f"[core]\nhooksPath = {own}\n[user]\nname = t\nemail = t\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    unpacked.write("file", "2\n")
    unpacked.batch("git commit -a -m two", allow=("git commit -a -m two",))
    assert unpacked.mark.exists()


def test_a_rebase_that_was_left_half_done_runs_none_of_its_programs(unpacked: Unpacked) -> None:
    unpacked.git("checkout", "--quiet", "--detach")
    identity = " ".join(IDENTITY)
    said = unpacked.plainly(f"git {identity} rebase --exec false --exec {unpacked.program} --root")
    assert "git rebase --continue" in said
    said = unpacked.batch("git rebase --continue", allow=("git rebase --continue",))
    assert "not allowed" in said
    assert not unpacked.mark.exists()
    unpacked.plainly("git rebase --continue")
    assert unpacked.mark.exists()


@pytest.mark.parametrize(
    "command", ["git fetch", "git ls-remote origin", "git fetch ext::true", "git clone ext::true x"]
)
def test_what_was_allowed_to_fetch_does_so_by_no_program(command: str, unpacked: Unpacked) -> None:
    unpacked.config(("remote.origin.url", f"ext::{unpacked.program}"))
    unpacked.plainly(f"GIT_ALLOW_PROTOCOL=ext {command.replace('true', str(unpacked.program))}")
    assert unpacked.mark.exists()
    unpacked.mark.unlink()
    said = unpacked.batch(command, allow=(command,))
    assert "not allowed" in said
    assert not unpacked.mark.exists()


def test_what_was_allowed_to_fetch_reads_no_other_repository_of_the_user(
    unpacked: Unpacked,
) -> None:
    unpacked.config(("remote.origin.url", str(private(unpacked))))
    said = unpacked.batch("git fetch origin", allow=("git fetch origin",))
    assert "transport 'file' not allowed" in said


def test_variables_of_the_users_that_point_elsewhere_do_not_count(
    unpacked: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = private(unpacked)
    harmless = unpacked.root / "harmless"
    harmless.write_text("")
    textconv_by_include(unpacked)
    monkeypatch.setenv("GIT_CONFIG", str(harmless))
    assert "include.path" in unpacked.batch("git log -p")
    unpacked.git("config", "--file", ".git/config", "--unset", "include.path")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.fsmonitor'='{unpacked.program}'")
    said = unpacked.batch("git status")
    assert "settings" in said
    assert not unpacked.mark.exists()


def test_settings_of_the_users_environment_stay(
    unpacked: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names like GIT_CONFIG_KEY_0 sound secret and are dropped: so must be their count."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "log.date")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "unix")
    assert "one" in unpacked.batch("git log")
    assert "1" in unpacked.batch("sh -c 'git --version'", allow=("sh -c 'git --version'",))


def allow_only(here: Unpacked, command: str) -> str:
    """What a model is told that runs a command which the user has written out."""
    return here.batch(command, allow=(command,))


def merge_program(here: Unpacked) -> None:
    """A merge strategy with a slash in its name is a file of the work tree."""
    (here.folder / "git-merge-x").mkdir()
    (here.folder / "git-merge-x" / "evil").symlink_to(here.program)
    here.commit()
    here.git("branch", "up")
    for name in ("a", "b"):
        here.write(name, name)
        here.commit()
    here.git("checkout", "--quiet", "up")
    here.write("c", "c")
    here.commit()


def planted_sequence(here: Unpacked) -> None:
    merge_program(here)
    here.write(".git/sequencer/head", here.git("rev-parse", "HEAD") + "\n")
    here.write(".git/sequencer/abort-safety", here.git("rev-parse", "HEAD") + "\n")
    here.write(".git/sequencer/todo", here.git("log", "--reverse", "--format=pick %H x", "..main"))
    here.write(".git/sequencer/opts", "[options]\n\tstrategy = x/evil\n")
    here.config(("user.name", "t"), ("user.email", "t@example.org"))


def planted_rebase(here: Unpacked) -> None:
    here.git("checkout", "--quiet", "--detach")
    here.plainly(f"git {' '.join(IDENTITY)} rebase --exec false --exec {here.program} --root")
    todo = here.folder / ".git" / "rebase-merge" / "git-rebase-todo"
    todo.write_text(todo.read_text() + f"# {'x' * 1000}\n" * 1100)


def planted_module(here: Unpacked) -> None:
    source = here.root / "source"
    source.mkdir()
    here.git("init", "--quiet", str(source))
    (source / ".gitattributes").write_text("* filter=x\n")
    here.commit(cwd="../source")
    file = ("-c", "protocol.file.allow=always")
    here.git(*file, "submodule", "--quiet", "add", str(source), "sub")
    here.commit()
    here.git("submodule", "--quiet", "deinit", "--force", "sub")
    (here.folder / ".git" / "modules" / "sub" / "index").unlink()


def module_with_filter(here: Unpacked) -> None:
    planted_module(here)
    here.git("--git-dir=.git/modules/sub", "config", "filter.x.smudge", f"{here.program}; cat")


def module_with_hook(here: Unpacked) -> None:
    planted_module(here)
    here.hook("post-checkout", ".git/modules/sub")


def nested_on_a_branch(here: Unpacked) -> None:
    here.git("checkout", "--quiet", "-b", "b")
    nested(here)
    here.write(".gitmodules", '[submodule "n"]\n\tpath=nested\n\turl=./n\n\tignore=none\n')
    here.write("nested/file", "1\n")
    here.commit()
    here.git("checkout", "--quiet", "main")
    here.write("nested/.git/info/attributes", "* filter=x\n")
    here.config(("filter.x.clean", f"{here.program}; cat"), cwd="nested")
    os.utime(here.folder / "nested" / "file", (1, 1))


def worktree_with_settings(here: Unpacked) -> None:
    here.git("worktree", "add", "--quiet", "tree", "-b", "side")
    here.config(("extensions.worktreeConfig", "true"))
    here.git("config", "--worktree", "filter.x.clean", f"{here.program}; cat", cwd="tree")
    here.write(".git/info/attributes", "* filter=x\n")
    os.utime(here.folder / "tree" / "file", (1, 1))


@pytest.mark.parametrize(
    ("trap", "command", "why"),
    [
        (planted_sequence, "git cherry-pick --continue", "left half done"),
        (planted_rebase, "git rebase --continue", "left half done"),
        (module_with_filter, "git submodule update --init", "filter.x.smudge"),
        (module_with_hook, "git submodule update --init", "post-checkout"),
        (nested_on_a_branch, "git checkout b", "filter.x.clean"),
        (nested_on_a_branch, "git switch b", "filter.x.clean"),
        (worktree_with_settings, "git worktree remove tree", "filter.x.clean"),
    ],
)
def test_a_command_that_was_written_out_runs_nothing_that_only_it_would_bring_in(
    trap: Trap, command: str, why: str, unpacked: Unpacked
) -> None:
    trap(unpacked)
    said = allow_only(unpacked, command)
    assert "not allowed" in said
    assert why in said
    assert not unpacked.mark.exists()
    told = unpacked.plainly(command)
    assert unpacked.mark.exists(), f"the trap does not work: {told}"


@pytest.mark.parametrize("name", ["rebase-merge", "rebase-apply", "sequencer"])
def test_nothing_is_changed_where_something_was_left_half_done(
    name: str, unpacked: Unpacked
) -> None:
    assert "all 1 ok" in allow_only(unpacked, "git add -A")
    (unpacked.folder / ".git" / name).mkdir()
    assert "left half done" in allow_only(unpacked, "git add -A")
    assert "is-one" in unpacked.batch("git log --format=is-%s")


def test_usual_submodules_worktrees_and_nested_repositories_are_no_obstacle(
    unpacked: Unpacked,
) -> None:
    planted_module(unpacked)
    unpacked.git("worktree", "add", "--quiet", "tree", "-b", "side")
    unpacked.git("init", "--quiet", "other")
    assert "all 1 ok" in allow_only(unpacked, "git submodule update --init")
    assert "all 1 ok" in allow_only(unpacked, "git checkout -b new")
    assert "all 1 ok" in allow_only(unpacked, "git worktree remove tree")


def test_a_list_of_borrowed_objects_that_is_too_long_to_read_is_no_empty_one(
    unpacked: Unpacked,
) -> None:
    other = private(unpacked) / ".git"
    comment = f"# {'x' * 1000}\n" * 1100
    unpacked.write(".git/objects/info/alternates", f"{comment}{other / 'objects'}\n")
    head = (other / "refs" / "heads" / "main").read_text()
    unpacked.write(".git/refs/heads/other", head)
    assert "a secret" in unpacked.plainly("git log -p --all")
    said = unpacked.batch("git log -p --all")
    assert "not allowed" in said
    assert "a secret" not in said


def test_what_was_not_allowed_to_fetch_fetches_nothing(unpacked: Unpacked) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        missing = unpacked.git("rev-parse", "HEAD:file")
        (unpacked.folder / ".git" / "objects" / missing[:2] / missing[2:]).unlink()
        unpacked.config(
            ("core.repositoryFormatVersion", "1"),
            ("extensions.partialClone", "origin"),
            ("remote.origin.url", f"git://127.0.0.1:{server.getsockname()[1]}/x"),
            ("remote.origin.promisor", "true"),
        )
        (unpacked.folder / "file").unlink()
        allow_only(unpacked, "git checkout -- file")
        assert not select.select([server], [], [], 0)[0]
        fetching = subprocess.Popen(["git", "checkout", "--", "file"], cwd=unpacked.folder)
        try:
            assert select.select([server], [], [], 30)[0], "the trap does not work"
        finally:
            fetching.kill()
            fetching.wait()


def test_a_question_to_git_ends(unpacked: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository_check, "_TIMEOUT_S", 0.5)
    os.mkfifo(unpacked.folder / ".git" / "packed-refs")

    async def main() -> str:
        async with asyncio.timeout(20):
            return await remove_if_clean(unpacked.folder)

    assert "does not answer there in time" in asyncio.run(main())
