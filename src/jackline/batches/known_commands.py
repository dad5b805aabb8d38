"""Know a few dozen commands, and git: which only read, which options give them power, which print.

Rules: (1) pure; (2) a command, verb or option that is not known to read only may change things; an
option that lets a harmless program write, start another or read unnamed files makes it harmful; (3)
a git behind another program (`env git log`) is judged like any git, and one whose words or place
only that program knows raises; (4) no output is strange only where the exit code says that there
was something to print.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from jackline.batches.commands import CommandStage, NotSimpleError, read_command

_LOOKING = frozenset(
    """
    blame cat-file check-attr check-ignore cherry count-objects describe diff diff-tree for-each-ref
    grep log ls-files ls-tree merge-base name-rev rev-list rev-parse shortlog show show-ref status
    version whatchanged
    """.split()  # noqa: SIM905 -- a table to be read
)
# Verbs that look if this comes first behind them.
_LOOKING_WITH = {"reflog": ("show",), "stash": ("list", "show"), "worktree": ("list",)}
# Harmless with every verb above, whatever word follows; `#` means a number, and behind a `=`
# any value is fine.
_OPTIONS = frozenset(
    """
    -- -# -n -n# -p -u -U# -w -b -i -l -v -s -z -c -m -r -t -e -a -h -A -B -C -E -F -G -H -I -L -M
    -P -S -A# -B# -C# -M# --abbrev --abbrev= --abbrev-commit --abbrev-ref --after --after= --all
    --all-match --always --ancestry-path --and --author --author= --before --before= --branch
    --branches --break-rewrites --cached --cc --cherry --cherry-mark --cherry-pick --color=never
    --column --committer --committer= --contains --count --date --date= --date-order --decorate
    --decorate=short --deleted --diff-filter= --dirty --email --exact-match --exclude-standard
    --exclude= --exit-code --extended-regexp --files-with-matches --find-copies --find-renames
    --first-parent --fixed-strings --follow --format= --full-history --full-name --git-dir --graph
    --grep --grep= --histogram --ignore-all-space --ignore-blank-lines --ignore-case
    --ignore-space-change --ignore-submodules=all --ignored --inter-hunk-context= --invert-grep
    --is-ancestor --is-bare-repository --is-inside-work-tree --left-only --left-right
    --line-number --line-porcelain --list --local --log-size --long --max-count= --max-depth
    --max-parents= --merge-base --merged --merges --min-parents= --minimal --modified --name-only
    --name-status --no-abbrev --no-color --no-decorate --no-ext-diff
    --no-merged --no-merges --no-notes --no-patch --no-recurse-submodules --no-renames
    --no-textconv --no-walk --not --null --numbered --numstat --octopus --oneline --or --others
    --parents --patch --patch-with-stat --patience --perl-regexp --pickaxe-all --pickaxe-regex
    --points-at --porcelain --porcelain=v1 --porcelain=v2 --pretty --pretty= --raw --refs
    --regexp-ignore-case --relative-date --remotes --reverse --right-only --root --short --shortstat
    --show-current --show-function --show-prefix --show-stash --show-toplevel
    --show-superproject-working-tree --simplify-by-decoration --since --since= --skip= --sort=
    --source --sparse --stage --staged --stat --stat= --submodule=short --summary --symbolic
    --symbolic-full-name --tags --text --topo-order --unified= --untracked --untracked-files=all
    --untracked-files=no --untracked-files=normal --until --until= --verbose --verify --version
    --word-diff --word-regexp
    """.split()  # noqa: SIM905 -- a table to be read
)
_CHECKS_SIGNATURE = re.compile(r"%[-+ ]?G|%\(\*?signature")
"""In a format: git starts gpg."""
_LISTING = ("-a", "-r", "-v", "-vv", "--list", "-l", "--all")
_HARMLESS_LEADING = ("--no-pager", "-P", "--version")
_WITH_VALUE = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env")
_NAMES_REPOSITORY = ("--git-dir", "--work-tree", "--bare")

# Programs that start the one behind them and change neither its words nor its folder.
PLAIN_WRAPPERS = frozenset(
    ("chrt", "command", "env", "exec", "ionice", "nice", "nohup", "setsid", "stdbuf", "taskset")
) | {"time", "timeout"}
OTHER_WRAPPERS = frozenset(
    """
    arch busybox chroot doas eval expect flock fakeroot find gdb ltrace machinectl nsenter parallel
    pkexec proxychains rlwrap runuser script ssh start-stop-daemon strace su sudo systemd-run toybox
    unbuffer unshare valgrind watch xargs xvfb-run
    """.split()  # noqa: SIM905 -- a table to be read
)
# Programs whose words say what is written where, unpacked or fetched, and `ps`, whose words are
# clusters of letters. No `*` matches such words (docs/decisions/075).
NAME_THEIR_FILES = frozenset(
    """
    7z 7za ar bsdtar cpio csplit curl gtar gunzip gzip patch rar rsync scp sftp split tar unrar
    unzip wget xz
    """.split()  # noqa: SIM905 -- a table to be read
)
WRITTEN_OUT = NAME_THEIR_FILES | frozenset(
    """
    chgrp chmod chown cp dd install link ln mv ps shred tee truncate unlink zip
    """.split()  # noqa: SIM905 -- a table to be read
)
_NUMBERED = re.compile(r"-[A-Za-z]?[0-9]{1,9}")
_LEADS_ELSEWHERE = re.compile(r"-|(?:GIT_\w*|HOME|XDG_\w*|PATH|LD_\w*|DYLD_\w*)=")


class UnjudgedGitError(Exception):
    """A git is started by another program in a way that cannot be judged; `by` names it."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


@dataclass(frozen=True, slots=True)
class GitCall:
    """One git of a command."""

    options: tuple[str, ...] = ()
    """All words before the verb."""
    folders: tuple[str, ...] = ()
    """What its `-C` say, each from the one before."""
    leading: tuple[str, ...] = ()
    """`--git-dir`, `--work-tree` and `--bare`, as written."""
    rest: tuple[str, ...] = ()
    """The verb with what follows."""
    harmless: bool = False
    """No other option is before the verb than those of place, and harmless ones."""
    names_hooks: bool = False
    """`-c core.hooksPath=…` says which hooks may run."""

    @classmethod
    def of(cls, words: Sequence[str]) -> GitCall:
        """The git that these words start, the program first."""
        if program_name(words[0]) != "git":  # `git-upload-pack` and its like
            return cls(rest=("",))
        rest, folders, options, leading = list(words[1:]), [], [], []
        harmless, names_hooks = True, False
        while rest and rest[0].startswith("-"):
            name, equals, value = rest[0].partition("=")
            option = [rest.pop(0)]
            if name in _WITH_VALUE and not equals and rest:
                value = rest.pop(0)
                option.append(value)
            options += option
            if name == "-C":
                folders.append(value)
            elif name in _NAMES_REPOSITORY:
                leading += option
            elif name == "-c":
                names_hooks = names_hooks or value.lower().startswith("core.hookspath=")
            elif name not in _HARMLESS_LEADING:
                harmless = False
        named = (tuple(options), tuple(folders), tuple(leading), tuple(rest))
        return cls(*named, harmless=harmless, names_hooks=names_hooks)

    @property
    def verb(self) -> str:
        """What git is to do; empty without a verb."""
        return self.rest[0] if self.rest else ""

    @property
    def looking(self) -> bool:
        """Whether it only looks, wherever that is."""
        return self.harmless and self._verb_looks

    def only_looks(self, written: int) -> bool:
        """Whether it only looks, given that the user has written out the first words, so many.

        Where it looks, and with which settings, is for the user to write.
        """
        free = self.options[written:]
        return all(word in _HARMLESS_LEADING for word in free) and self._verb_looks

    @property
    def _verb_looks(self) -> bool:
        if not self.rest:
            return True  # without a verb it describes itself
        verb, rest = self.rest[0], self.rest[1:]
        if verb in ("branch", "tag", "remote"):
            return all(word in (*_LISTING, "--show-current") for word in rest)
        if verb in _LOOKING_WITH and (not rest or rest[0] not in _LOOKING_WITH[verb]):
            return False
        return (verb in _LOOKING or verb in _LOOKING_WITH) and not any(
            _CHECKS_SIGNATURE.search(word) or (word[:1] == "-" and not is_listed(word, _OPTIONS))
            for word in rest
        )


def is_listed(option: str, listed: Container[str]) -> bool:
    """Whether an option is in a list such as "-v -n# --since=": exactly so."""
    name, equals, _ = option.partition("=")
    if option in listed or (equals and f"{name}=" in listed):
        return True
    return bool(_NUMBERED.fullmatch(option)) and re.sub(r"[0-9]+", "#", option) in listed


def program_name(word: str) -> str:
    """A program without its folder, as a list spells it."""
    return PurePosixPath(word.replace("\\", "/")).name.lower().removesuffix(".exe")


def is_git(word: str) -> bool:
    """Whether the word names git, or one of its programs (`git-upload-pack`)."""
    name = program_name(word)
    return name == "git" or name.startswith("git-")


_SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"})


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GREP = _names(
    "-- -# -n -i -r -l -L -c -w -x -E -F -G -P -v -H -h -o -s -q -e -m -m# -A -B -C -A# -B# -C# -rn"
    " -nr -in -ni -rni -rin -rl -ril -rli -nE -rnE -rE -En -Er -Ern -nF -rnF -lr -rh -rc -cr"
    " --include= --exclude= --exclude-dir= --color=never --count --ignore-case --line-number"
    " --recursive --word-regexp --files-with-matches --no-messages --extended-regexp"
    " --fixed-strings --only-matching"
)
_SUMS = _names("-- -b -t --tag")

# Programs that leave things as they are and follow no link below a folder, with their options.
# `#` means a number, and behind a `=` any value is fine.
_LOOKERS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        _names("[ basename comm df dirname echo expr false groups id locale nproc paste printenv")
        | _names("printf pwd readlink realpath rev seq sum tac test tr true uname uptime which")
        | _names("expand fmt fold unexpand whoami"),
        _names("-- -a -d -f -e -h -m -n -r -s -u -w -z -p -o -nt -gt -lt -ge -le -eq -ne -x -L"),
    ),
    **dict.fromkeys(("egrep", "fgrep", "grep"), _GREP),
    **dict.fromkeys(("b2sum", "cksum", "md5sum", "sha1sum", "sha224sum", "sha256sum"), _SUMS),
    **dict.fromkeys(("sha384sum", "sha512sum"), _SUMS),
    "base64": _names("-- -d -w --decode"),
    "cat": _names("-- -n -b -s -e -t -A -v -E -T"),
    "cmp": _names("-- -s -l -b"),
    "column": _names("-- -t -s"),
    "cut": _names("-- -d -f -c -b -s"),
    "diff": _names(
        "-- -u -r -N -q -w -b -B -i -y -U -U# -ru -rq -ruN -rN -qr -ur -urN --unified --brief"
        " --recursive --new-file --color=never --ignore-all-space --exclude= --no-dereference"
    ),
    "du": _names("-- -s -h -a -c -k -m -d -d# -sh -ah -hs -sk --max-depth= --summarize"),
    "file": _names("-- -b -i --brief --mime --mime-type --mime-encoding"),
    "find": _names(
        "-name -iname -path -ipath -type -maxdepth -mindepth -size -mtime -mmin -newer -empty -not"
        " -o -a -or -and -print -print0 -prune -regex -iregex -perm -user -ls -true -false"
    ),
    "head": _names("-- -# -n -n# -c -c# -q -v"),
    "hexdump": _names("-- -C -n -s"),
    "ls": _names(
        "-- -# -l -a -A -h -R -r -t -S -d -F -i -s -la -al -lh -lah -lha -alh -lt -ltr -lart -laR"
        " -lR -Ra -aR -lS -ld -lrt -lhS -all --all --human-readable --recursive --color=never"
    ),
    "nl": _names("-- -b -ba"),
    "od": _names("-- -c -x -b -A -t -N -j"),
    "rg": _names(
        "-- -# -n -i -l -c -w -v -F -o -e -g -t -T -S -s -U -A -B -C -A# -B# -C# -m -N -H -uu -u"
        " --files --hidden --no-ignore --glob --glob= --type --type= --count --ignore-case"
        " --files-with-matches --line-number --max-count= --max-depth= --sort= --color=never"
        " --multiline --word-regexp --fixed-strings --heading --no-heading --json --stats --iglob="
    ),
    "sort": _names("-- -n -r -u -f -h -k -k# -t -b -V -c -C -s -nr -rn -hr -rh -un -nu --check"),
    "stat": _names("-- -c -f -t -x --format= --printf="),
    "strings": _names("-- -a -n -n#"),
    "tail": _names("-- -# -n -n# -c -c# -q -v"),
    "tree": _names("-- -a -d -f -h -L -I -P -i -s -C -n --noreport --dirsfirst --gitignore"),
    "wc": _names("-- -l -w -c -m -L"),
}

# Programs of which the user means to run them over the project: they read its links as they like.
_CHECKERS: dict[str, frozenset[str]] = {
    "mypy": _names("-- --strict --no-error-summary --show-error-codes --pretty"),
    "pytest": _names(
        "-- -x -q -qq -v -vv -vvv -k -m -s -l -rA -rf -rs -ra -xq -qx -xv -xvs -vs -sv --tb=short"
        " --tb=long --tb=no --tb=line --tb=native --tb=auto --lf --ff --last-failed --failed-first"
        " --maxfail= --durations= --co --collect-only --exitfirst --quiet --verbose --no-header"
        " --no-summary --showlocals --stepwise --strict-markers --strict-config --color=no"
        " --deselect= --ignore= --ignore-glob= --cache-clear -n# --numprocesses= --no-cov"
    ),
    "ruff": _names("-- --statistics --quiet --verbose --diff --check --select= --ignore= -q -v"),
}
_FOLLOWS_NOTHING = frozenset(_CHECKERS) | _names(
    "bazel black bun cargo deno dotnet eslint flake8 git go gradle isort make mkdir mvn node nox"
    " npm npx pnpm pre-commit prettier pyright python python3 rm rmdir ruby touch tox tsc uv yarn"
)

# Their first operand is a program in a language of their own: no `*` matches it.
_READ_A_PROGRAM = _names(
    "awk bc dc ed ex gawk gsed jq m4 mawk mysql nawk osascript psql sed sqlite sqlite3 yq"
)
_READ_SETTINGS = _names("bmake gmake just make nmake task")
"""An operand with a `=` sets a variable, by which they start any program."""

_VERSIONED = _names(
    "bun cargo cmake deno docker gcc go java make node npm pip pip3 pnpm python python3 ruby rustc "
    "ruff uv yarn"
)

_ALWAYS_PRINT = _names(
    "date df du env expr file hostname id ls md5sum nproc ps pwd printenv sha1sum sha256sum "
    "sha512sum stat tree type uname uptime wc which whoami"
)
_PRINT_FILES = _names("cat head jq nl od sort tac tail uniq hexdump strings xxd")
_PRINT_MATCHES = _names("grep egrep fgrep rg")
_TEST_RUNNERS = _names("ctest jest mocha nox phpunit py.test pytest rspec tox vitest")
_TESTED_BY = _names("bun cargo deno dotnet go gradle make mix mvn npm pnpm swift yarn")


def changes_nothing(line: str, *, windows: bool = False) -> bool:
    """Whether every program of a command line is known to leave things as they are."""
    try:
        stages = read_command(line, windows=windows)
    except NotSimpleError:
        return False
    # The shell may make options of file names, and programs of its own have other options.
    plain = not windows and not any(word.globbed for stage in stages for word in stage.words)
    return plain and all(
        stage.texts[0] == "cd" or Invocation(stage.texts).is_harmless for stage in stages
    )


def usually_prints(line: str, *, windows: bool = False) -> bool:
    """Whether success without any output would be strange."""
    try:
        stages = read_command(line, windows=windows)
    except NotSimpleError:
        return False
    if any(stage.joint == "||" or stage.silenced for stage in stages):
        return False
    # Each pipe prints by its last program; in a sequence, any of them prints.
    ends = [
        position
        for position in range(len(stages))
        if position + 1 == len(stages) or stages[position + 1].joint != "|"
    ]
    return any(_stage_prints(stages, end) for end in ends)


@dataclass(frozen=True, slots=True)
class Invocation:
    """A program with its words, as it would be started."""

    words: tuple[str, ...]

    @property
    def name(self) -> str | None:
        """The program by its bare name; None for one that only sounds like a known one."""
        folder, slash, name = self.words[0].rpartition("/")
        return name if not slash or folder in _SYSTEM_FOLDERS else None

    @property
    def is_harmless(self) -> bool:
        """Whether the program is known to leave things as they are with these words."""
        name, rest = self.name, self.words[1:]
        if name in _VERSIONED:
            return rest in (("--version",), ("-V",), ("-v",), ("version",))
        if name == "git":
            return GitCall.of(self.words).only_looks(0)
        listed = _LOOKERS.get(name or "")
        return listed is not None and all(is_listed(o, listed) for o in rest if o[:1] == "-")

    @property
    def is_known(self) -> bool:
        """Whether it is a program whose operands no shell will read."""
        return self.name in _LOOKERS or self.name in _CHECKERS or self.name == "git"

    def knows_option(self, option: str) -> bool:
        """Whether this option is known to be harmless, whatever word follows."""
        name = self.name or ""
        return is_listed(option, _LOOKERS.get(name) or _CHECKERS.get(name) or ())

    def takes_operand(self, written: Sequence[str], operand: str) -> bool:
        """Whether it takes a free operand for data; `written` are words that the user wrote out."""
        name = program_name(self.words[0])
        if name in _READ_A_PROGRAM:
            return any(word[:1] != "-" for word in written)
        return name not in _READ_SETTINGS or "=" not in operand

    @property
    def reads_links(self) -> bool:
        """Whether it may read, or write, what links below a folder lead to.

        A program that is named by its path is the project's or the user's own: it does as it likes.
        """
        if self.name is None or self.name in _FOLLOWS_NOTHING:
            return False
        return self.name == "diff" or not self.is_harmless

    @property
    def follows_folder(self) -> bool:
        """Whether what lies in the folder in which it runs may say what runs.

        Also for its version: `yarn` and `cargo` start the release that a file there names.
        """
        return not self.is_harmless or self.name in _VERSIONED

    @property
    def speaks(self) -> bool:
        """Whether it is one of the programs that print depending on their first words, and does."""
        name, words = self.name, self.words[1:]
        if name == "echo":
            return any(words) and words[0] != "-n"
        if name == "git":
            quiet = any(re.match(r"-s$|-q|--quiet|--short|--porcelain|-z$", word) for word in words)
            return (
                bool(
                    _names(
                        "blame describe log rev-parse shortlog show status version"
                    ).intersection(words[:1])
                )
                and not quiet
            )
        if name in ("python", "python3") and words[:1] == ("-m",):
            return words[1:2] in (("pytest",), ("unittest",))
        if name in _VERSIONED and words[:1] in (("--version",), ("-V",), ("version",)):
            return True
        if name in _TESTED_BY:
            return words[:1] == ("test",) or words[:2] == ("run", "test")
        return name in _TEST_RUNNERS

    @property
    def git_at(self) -> int | None:
        """The place of a git that is started, among the words; None without one."""
        at = next((number for number, word in enumerate(self.words) if is_git(word)), None)
        wrappers = PLAIN_WRAPPERS | OTHER_WRAPPERS
        return at if at == 0 or program_name(self.words[0]) in wrappers else None

    @property
    def git(self) -> GitCall | None:
        """The git that is started, if any; UnjudgedGitError when it cannot be judged."""
        wrapper, at = program_name(self.words[0]), self.git_at
        if at is None:
            return None
        if wrapper in OTHER_WRAPPERS or (
            wrapper == "env" and any(map(_LEADS_ELSEWHERE.match, self.words[1:at]))
        ):
            raise UnjudgedGitError(wrapper)
        return GitCall.of(self.words[at:])


def program(line: str) -> str:
    """The name of the first program, for a person; the first word when the line is not simple."""
    try:
        first = read_command(line)[0].words[0].text
    except NotSimpleError:
        first = (line[:200].split() or ["shell"])[0]
    return PurePosixPath(first).name or first


def _stage_prints(stages: Sequence[CommandStage], at: int) -> bool:
    stage = stages[at]
    program = Invocation(stage.texts)
    name, words = program.name, stage.texts[1:]
    if name in _PRINT_MATCHES:
        return not any(re.match(r"-[a-zA-Z]*q|--quiet|--silent", word) for word in words)
    if name in _PRINT_FILES:
        if stage.joint == "|":
            before = Invocation(stages[at - 1].texts).name
            return before not in _PRINT_MATCHES and _stage_prints(stages, at - 1)
        return any(word[:1] != "-" for word in words)
    return name in _ALWAYS_PRINT or program.speaks
