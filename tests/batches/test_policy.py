"""Laws of the policy: nothing runs by default, and no trick gets round what was allowed."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.batches.fetch import FetchTool
from jackline.batches.files import ReadTool, SearchTool, WriteTool
from jackline.batches.policy import Allowed, CallPermission, Denied, Policy
from jackline.batches.shell import ShellTool
from jackline.batches.tool import BatchCall, JsonObject, Tool

FOLDER = Path("/home/me/project")
POLICY = Policy(
    FOLDER,
    allow=(
        "pytest *",
        "git log *",
        "make lint",
        "head *",
        "write:docs/*",
        "fetch:https://docs.python.org/*",
    ),
    windows=False,
)


def judge(tool: Tool, policy: Policy = POLICY, **arguments: object) -> CallPermission:
    return policy.judge(BatchCall("1", tool, arguments))


def allowed(policy: Policy, command: str) -> bool:
    """Whether a command may run, and then as the words that one would read in it."""
    said = judge(ShellTool(), policy, command=command)
    assert isinstance(said, Denied) or list(said.argv) == shlex.split(command)
    return isinstance(said, Allowed)


def advised(denied: CallPermission) -> Policy:
    """The policy of a user who does what the denial says."""
    assert isinstance(denied, Denied)
    found = re.search(r'batch\.allow(?:: (".*")|)(?:;|$)|add (".*") to batch.allow', denied.hint)
    assert found, denied.hint
    return Policy(
        FOLDER, tomllib.loads(f"allow = [{found[1] or found[2]}]")["allow"], windows=False
    )


def test_by_default_only_reading_and_searching_inside_the_folder_is_allowed() -> None:
    bare = Policy(FOLDER)
    assert judge(ReadTool(), bare, path="a/b.txt") == Allowed()
    assert judge(SearchTool(), bare, pattern="x") == Allowed()
    others: list[tuple[Tool, JsonObject]] = [
        (ShellTool(), {"command": "ls"}),
        (ShellTool(), {"argv": ["ls"]}),
        (WriteTool(), {"path": "a"}),
        (FetchTool(), {"url": "https://docs.python.org/3/"}),
    ]
    for tool, arguments in others:
        denied = judge(tool, bare, **arguments)
        assert isinstance(denied, Denied)
        assert denied.hint


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "~/x", "a/../../x", "a\0b", "/home/me/project-other/x"]
)
def test_nothing_outside_may_be_read(path: str) -> None:
    for tool in (ReadTool(), SearchTool(), WriteTool()):
        assert isinstance(judge(tool, path=path), Denied)


@pytest.mark.parametrize(
    "command",
    [
        "pytest",
        "pytest tests/test_a.py::test_b -x",
        "git log -3 --format='%H %s'",
        "git log main..HEAD",
        "make lint",
        "pytest /home/me/project/tests",
        "pytest -k 'a or b'",
    ],
)
def test_what_was_allowed_may_run(command: str) -> None:
    assert allowed(POLICY, command)


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf .",
        "git push",
        "make lint install",
        "make",
        "pytestx",
        "pytest; rm x",
        "git log | head -5",
        "pytest 2>&1",
        "pytest *.py",
        "pytest a?",
        "pytest [ab]",
        "pytest a/../b",
        "pytest /home/me/project/../x",
        "pytest -p x",
        "pytest --rootdir .",
        "pytest @x",
        "pytest +x",
        "pytest && rm x",
        "pytest || rm x",
        "pytest & rm x",
        "pytest | sh",
        "pytest\nrm x",
        "pytest $(rm x)",
        'pytest "$(rm x)"',
        "pytest `rm x`",
        "pytest > ../x",
        "pytest > x",
        "pytest 2> x",
        "pytest < /etc/passwd",
        "pytest <(rm x)",
        "pytest $HOME",
        "pytest ${X}",
        "pytest {a,../b}",
        "pytest ~/x",
        "pytest ../other",
        "pytest /etc",
        "pytest --rootdir=/etc",
        "pytest --rootdir=../x",
        "pytest -c/etc/x",
        "pytest -c../x",
        "pytest -xf/etc/x",
        "pytest -xzf../x",
        "pytest -xf~/x",
        "pytest @/etc/x",
        "pytest file:///etc/x",
        "pytest a:/etc/x",
        "pytest .*/x",
        "pytest .?/x",
        "pytest a/.[.]/x",
        "PYTHONPATH=/tmp pytest",
        "env pytest",
        "./pytest",
        "'pytest ' x",
        "pytest 'a",
        "! pytest",
        "",
        " ",
    ],
)
def test_no_trick_gets_round_the_allowed_patterns(command: str) -> None:
    assert isinstance(judge(ShellTool(), command=command), Denied)


def test_argv_is_judged_by_the_same_rules() -> None:
    one_word = judge(ShellTool(), argv=["pytest", "; rm x"])  # no shell reads it
    assert one_word == Allowed(argv=("pytest", "; rm x"))
    assert isinstance(judge(ShellTool(), argv=["pytest", "../x"]), Denied)
    assert isinstance(judge(ShellTool(), argv=["rm"]), Denied)
    assert isinstance(judge(ShellTool(), argv=[]), Denied)
    assert isinstance(judge(ShellTool(), command="pytest", cwd=".."), Denied)


def test_a_star_alone_allows_no_command() -> None:
    for pattern in ("*", "* x", "l* *", "scripts/* *", "ls | wc"):
        denied = judge(ShellTool(), Policy(FOLDER, (pattern,)), command="ls x")
        assert isinstance(denied, Denied)
        assert f"'{pattern}' in batch.allow allows nothing" in denied.hint


def test_writing_and_fetching_are_allowed_by_pattern() -> None:
    assert judge(WriteTool(), path="docs/a.md") == Allowed()
    assert isinstance(judge(WriteTool(), path="docs/../src/a.py"), Denied)
    assert isinstance(judge(WriteTool(), path="src/a.py"), Denied)
    assert judge(FetchTool(), url="https://docs.python.org/3/") == Allowed()
    assert isinstance(judge(FetchTool(), url="https://evil.example/docs.python.org/"), Denied)
    assert isinstance(judge(FetchTool(), url=5), Denied)


def test_on_windows_only_plain_words_are_read() -> None:
    policy = Policy(Path("C:/project"), allow=("pytest *", "type *"), windows=True)
    assert isinstance(judge(ShellTool(), policy, command="pytest -x tests"), Allowed)
    for command in (
        "pytest & del x",
        "type C:secret",
        "pytest %TEMP%",
        "type C:\\secret",
        "type ..\\secret",
        "type \\x",
    ):
        assert isinstance(judge(ShellTool(), policy, command=command), Denied)


def test_a_denial_says_what_would_help() -> None:
    denied = judge(ShellTool(), command="npm test")
    assert denied == Denied(
        "the command `npm` is not allowed with these words",
        'the user may add "npm *" to batch.allow; reading and searching always are allowed',
    )
    chained = judge(ShellTool(), command="pytest; ls")
    assert isinstance(chained, Denied)
    assert "a call of its own" in chained.hint


LOOKING = ("git log *", "git grep *", "git *", "find *", "sort *", "rg *", "touch *", "cat *")


@pytest.mark.parametrize(
    "command",
    [
        "git log --output=.git/config -1",
        "git log --outpu=x",
        "git log --o=x",
        "git log -p --ext-diff",
        "git log -p --textconv",
        "git log --show-signature",
        "git grep -Ovi x",
        "git grep -nOvi x",
        "git grep --open-files-in-pager=vi x",
        "git grep -1Osh x",
        "git grep -GOsh x",
        "git grep -LOsh x",
        "git log --help",
        "git status --ignore-submodules=none",
        "git diff --ignore-sub=none",
        "git diff --submodule=diff",
        "git grep --recurse-submodules x",
        "git log -1 --outp[u]t=.git/config",
        "find . -maxdepth 0 -exe[c] sh run.sh",
        "git log *",
        "git push",
        "git stash",
        "git worktree add x",
        "git reflog expire --all",
        "git config --unset x",
        "git --no-pager -C inner log",
        "git -c core.fsmonitor=x status",
        "git -C inner log",
        "git --git-dir=inner log",
        "git --exec-path=inner log",
        "git config core.fsmonitor x",
        "git config --get user.name",
        "git config --list --includes --file x.cfg",
        "git config --list --global",
        "git log --pretty=format:%GG",
        "git log --format=%+G?",
        "git for-each-ref --format=%(signature)",
        "find . -exec rm {} +",
        "find . -delete",
        "sort -o .gitattributes x",
        "rg --pre x y",
        "cp x .git/config",
        "cp x .GIT/hooks/post-commit",
        "cp x inner/.git/config",
    ],
)
def test_a_star_stands_for_no_word_that_makes_looking_more_than_looking(command: str) -> None:
    denied = judge(ShellTool(), Policy(FOLDER, LOOKING, windows=False), command=command)
    assert isinstance(denied, Denied)
    assert denied.hint


@pytest.mark.parametrize(
    "command",
    [
        "git log --oneline -5 --first-parent --follow a.py",
        "git log -p -S Output",
        "git log -C -c --stat",
        "git --no-pager log",
        "git status --short",
        "git rev-parse --git-dir",
        "git grep -n pattern",
        "git stash list",
        "git --version",
        "git branch --show-current",
        "git -P log",
        "find . -name x",
        "sort -n x",
        "cat .git/config",
        "touch .github/workflows",
    ],
)
def test_looking_is_what_a_star_stands_for(command: str) -> None:
    assert allowed(Policy(FOLDER, LOOKING, windows=False), command)


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("git log --output x", "git log --output x"),
        ("git push origin main", "git push origin main"),
        ("git commit -m 'two words'", "git commit -m 'two words'"),
        ("git rebase -x true main", "git rebase -x true main"),
        ("git -C inner log *", "git -C inner log -3"),
        ("git -c log.date=unix log *", "git -c log.date=unix log -3"),
        ("find . -delete", "find . -delete"),
        ("sort -o *", "sort -o x y"),
        ("cp x .git/config", "cp x .git/config"),
        ("cat ../x", "cat ../x"),
        ("find -L *", "find -L src -name x"),
        ("rm -r build/*", "rm -r build/x"),
        ("pytest --cov=* tests/*", "pytest --cov=src tests/test_a.py"),
        ("find . -name '*.py'", "find . -name '*.py'"),
        ("sed -n 1,20p *", "sed -n 1,20p a b"),
        ("jq .version *", "jq .version package.json"),
        ("tar -xf a.tar", "tar -xf a.tar"),
        ("timeout 5 pytest *", "timeout 5 pytest -x tests"),
        ("nice -n 5 sort *", "nice -n 5 sort -n x"),
        ("env A=b pytest *", "env A=b pytest"),
        ("make *", "make lint"),
        ("'[' *", "'[' -f x ']'"),
        ("[ *", "'[' -f x ']'"),
    ],
)
def test_what_is_written_out_was_meant(pattern: str, command: str) -> None:
    assert allowed(Policy(FOLDER, (pattern,), windows=False), command)


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("cp *", "cp a b"),
        ("cp -r *", "cp -r a b"),
        ("mv a *", "mv a b"),
        ("tar -xf *", "tar -xf a.tar"),
        ("nice rsync *", "nice rsync a b"),
        ("/usr/bin/tee *", "/usr/bin/tee a"),
        ("curl -s *", "curl -s a"),
    ],
)
def test_a_program_that_writes_where_its_words_say_is_written_out(
    pattern: str, command: str
) -> None:
    """No pattern allows it (decision 075), and the advice that is given does."""
    denied = judge(ShellTool(), Policy(FOLDER, (pattern,), windows=False), command=command)
    assert isinstance(denied, Denied)
    assert "must be written out whole" in denied.hint
    assert allowed(advised(denied), command)


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("rm -r build/*", "rm -r build/../src"),
        ("rm -r build/*", "rm -r build/x -f"),
        ("find -L *", "find -L . -delete"),
        ("sort -o *", "sort -o x --compress-program=y z"),
        ("pytest --cov=*", "pytest --cov=../x"),
        ("pytest --*", "pytest --version"),
        ("find . -name '*.py'", "find . -name 'x.py'"),
        ("sed -n *", "sed -n 1p x"),
        ("sed * x", "sed 1p x"),
        ("make *", "make CC=x"),
        ("nice *", "nice ls"),
        ("time -o sort *", "time -o sort x"),
        ("sudo ls *", "sudo ls x"),
        ("docker *", "docker 'a b'"),
        ("docker *", "docker 'a;b'"),
        ("cp *", "cp x a,.git/config"),
        ("git log *", "git log --since=../x"),
    ],
)
def test_what_is_written_out_gives_itself_and_nothing_else(pattern: str, command: str) -> None:
    policy = Policy(FOLDER, (pattern,), windows=False)
    assert not allowed(policy, command)


READERS = tuple(
    f"{name} *"
    for name in (
        *("sort", "grep", "egrep", "file", "uniq", "wc", "du", "find", "rg", "tree", "xxd", "jq"),
        *("ls", "strings", "md5sum", "sha256sum", "cksum", "ps", "diff", "env sort"),
        *("timeout 5 find", "env git log", "nice sort", "nice -n 5 sort"),
    )
)


@pytest.mark.parametrize(
    "command",
    [
        "sort --files0-from=list",
        "sort --fi=list",
        "sort --compress-program=./x a",
        "sort --co=./x a",
        "sort --te=. a",
        "sort -no x a",
        "sort --ou x a",
        "wc --files0-from=list",
        "wc --f=list",
        "du --files0-from list",
        "du -aL",
        "find -files0-from list",
        "find -L . -name x",
        "find . -follow",
        "grep -R x .",
        "grep -nR x",
        "grep --dereference-recursive x",
        "grep --deref x",
        "egrep -R x .",
        "file -f list",
        "file -bf list",
        "file --files-from=list",
        "file --fil list",
        "file --compi",
        "file -C -m x",
        "uniq run.sh -- -x",
        "uniq -- a b",
        "rg -L x",
        "rg --follow x",
        "rg --pre=./x y",
        "tree -l",
        "tree --fromfile x",
        "xxd a -- b",
        "jq -f x",
        'jq -n \'import "d" as $d {search: "/home/me"}; $d\'',
        "jq -L dir .",
        "ls -LR",
        "ls -R --deref",
        "strings @list",
        "md5sum -c list",
        "sha256sum --ch list",
        "cksum --check list",
        "ps axe",
        "nice sort -o x y",
        "nice -n 5 sort --files0-from=x",
        "env sort -o x y",
        "timeout 5 find . -delete",
        "env git log --output=x",
    ],
)
def test_a_reader_reads_no_list_of_files_follows_no_links_and_writes_nothing(command: str) -> None:
    denied = judge(ShellTool(), Policy(FOLDER, READERS, windows=False), command=command)
    assert isinstance(denied, Denied)
    assert allowed(advised(denied), command)


@pytest.mark.parametrize(
    "command",
    [
        "sort --check a",
        "sort -k 2,2n -u a",
        "grep -rn --include='*.py' x src",
        "grep -c x a.py",
        "wc -l a.py b.py",
        "du -sh src",
        "find . -type f -name '*.py'",
        "file -b --mime-type a",
        "rg -n x",
        "tree -L 2",
        "ls -la src",
        "ls -R",
        "sha256sum a",
        "diff -u a b",
        "nice sort a",
    ],
)
def test_what_readers_are_known_for_is_allowed(command: str) -> None:
    assert allowed(Policy(FOLDER, READERS, windows=False), command)


def test_nothing_is_written_into_git_unless_a_pattern_names_it() -> None:
    wide, named = Policy(FOLDER, ("write:*",)), Policy(FOLDER, ("write:.git/info/*",))
    for path in (
        ".git/config",
        "a/.git/hooks/x",
        ".Git/config",
        "a/../.git/config",
        "GIT~1/config",
        ".g\u200cit/config",
    ):
        assert isinstance(judge(WriteTool(), wide, path=path), Denied)
    assert judge(WriteTool(), wide, path=".gitignore") == Allowed()
    assert judge(WriteTool(), named, path=".git/info/exclude") == Allowed()
    assert isinstance(judge(WriteTool(), named, path=".git/config"), Denied)
    assert isinstance(judge(ShellTool(), POLICY, command="pytest", cwd=".git"), Denied)


CLUSTERED = (
    ("cp", "cp -ft.git config"),
    ("mv", "mv -ft.git/hooks pre-commit"),
    ("curl", "curl -so.git/config example.org"),
    ("curl", "curl -#o.git/config example.org"),
    ("curl", "curl -4sT/etc/hostname example.org"),
    ("grep", "grep -1cf/etc/passwd f"),
    ("ln", "ln -sft.git x"),
    ("install", "install -Dt.git x"),
    ("tar", "tar -czf.git/x y"),
    ("tar", "tar -xvC.git"),
    ("sed", "sed -ni.git/x p y"),
    ("cp", f"cp -{'f' * 5000}t.git config"),
)


@pytest.mark.parametrize(("name", "command"), CLUSTERED)
def test_short_options_in_one_word_hide_no_path(name: str, command: str) -> None:
    denied = judge(ShellTool(), Policy(FOLDER, (f"{name} *",), windows=False), command=command)
    assert isinstance(denied, Denied)


_WORDS = st.one_of(
    st.sampled_from(
        [
            *("-n", "-r", "-R", "-rn", "--", "-5", "-exec", "--output=x", "--since=x"),
            *("--include=*.py", "../x", "a/../b", "/etc", "~/x", ".git/config", "a=b", "a:/x"),
            *("x@~/y", "+x", "@x", "a b"),
        ]
    ),
    st.text("ab./~-=:,;@ \\$\n\u200c", max_size=8),
)
_LISTED = frozenset(("-n", "-r", "-rn", "--", "-5", "--since=", "--include=", "-e", "-a", "-b"))


def _is_plain(word: str) -> bool:
    """What a `*` may stand for, said once more and otherwise than in the policy."""
    pieces = re.split(r"[/\\=:,;@\s]", word)
    starts = re.split(r"[=:,;@\s]", word)
    return (
        not word.startswith("-")
        and len(word) <= 4096
        and all(ord(sign) >= 32 for sign in word)
        and ".." not in pieces
        and not any(start.startswith(("/", "~")) for start in starts)
    )


@given(
    program=st.sampled_from(("grep", "find", "git log", "cp", "docker", "sort -o out", "make")),
    words=st.lists(_WORDS, max_size=4),
)
def test_every_word_that_a_star_stands_for_is_plain_or_a_listed_option(
    program: str, words: list[str]
) -> None:
    argv = [*program.split(), *words]
    said = judge(ShellTool(), Policy(FOLDER, (f"{program} *",), windows=False), argv=argv)
    if isinstance(said, Denied):
        return
    assert list(said.argv) == argv
    for word in words:
        name, equals, value = word.partition("=")
        listed = name + equals in _LISTED and _is_plain(value)
        assert listed or _is_plain(word), argv
        if program in ("cp", "docker", "make", "sort -o out"):
            assert ".git" not in re.split(r"[/\\=:,;@\s]", word.replace("\u200c", ""))


@given(
    st.builds(
        lambda program, words: [program, *words],
        st.text(max_size=4) | st.sampled_from(("npm", "git", "sudo", "nice", "sed", "grep")),
        st.lists(st.text(max_size=6) | st.sampled_from(("-x", "*", "push", "'", '"')), max_size=4),
    )
)
def test_the_advice_works_when_it_is_followed(words: list[str]) -> None:
    denied = judge(ShellTool(), Policy(FOLDER, windows=False), argv=words)
    assert isinstance(denied, Denied)
    if "batch.allow" in denied.hint:
        said = judge(ShellTool(), advised(denied), argv=words)
        assert isinstance(said, Allowed), denied.hint
        assert said.argv == tuple(words)


CHANGING = (
    "git add -A",
    "git am x.mbox",
    "git apply x.diff",
    "git checkout b",
    "git cherry-pick b",
    "git clone -4c core.sshCommand=./x origin",
    "git commit -aFs",
    "git config user.name x",
    "git fetch origin",
    "git merge b",
    "git pull",
    "git push origin main",
    "git rebase -qx ./x main",
    "git rebase -s x/evil main",
    "git reset --hard",
    "git stash pop",
    "git submodule update",
    "git switch b",
    "git worktree remove x",
    "git unheard-of",
    "git -C inner commit -a",
    "nice git commit -a",
    "time -o sort git commit -a",
    "git-upload-pack x",
    "git commit -m 'it is done'",
)


@pytest.mark.parametrize("command", CHANGING)
def test_git_changes_something_only_if_every_word_was_written(command: str) -> None:
    program, *words = shlex.split(command)
    wild = [f"{program} *", f"{program} {words[0]} *", "nice git *", "time -o sort git *"]
    wild.append(f"{command} *")
    wild.append(f"{program} {'* ' * len(words[1:])}{words[-1][:-1]}*")
    denied = judge(ShellTool(), Policy(FOLDER, tuple(wild), windows=False), command=command)
    assert isinstance(denied, Denied)
    following = advised(denied)
    assert allowed(following, command)
    assert not allowed(following, f"{command} more")
