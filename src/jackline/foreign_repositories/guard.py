"""Which settings of a foreign repository are harmless, and with which variables git runs there.

Rules: (1) pure; (2) the list names what is allowed: git has hundreds of settings, and releases add
some that start a program or name a file or host, so an unknown setting is foreign; (3) "inert"
relies on the protocols that the guard allows, which git passes on to the git that it starts in
submodules; "guarded" relies on the settings that the guard overrides, which not every git passes on
(docs/decisions/060); (4) variables that point git elsewhere are removed: the folder in which git
starts decides which repository it is; (5) what the user has set by variables stays, before the
guard's own settings, of which the last one counts; (6) git is found in absolute folders only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from jackline.programs import absolute_path

SettingKind: TypeAlias = Literal[
    "inert", "guarded", "work tree", "file", "hooks", "tool", "foreign"
]

# A setting is `section.name`, or `section.*.name` with any subsection, in lower case.
_INERT = frozenset(
    """
    am.keepcr am.threeway apply.whitespace author.email author.name
    blame.blankboundary blame.coloring blame.date blame.showemail blame.showroot
    branch.autosetupmerge branch.autosetuprebase branch.sort
    branch.*.description branch.*.merge branch.*.pushremote branch.*.rebase branch.*.remote
    checkout.defaultremote checkout.guess
    clean.requireforce column.branch column.status column.tag column.ui
    commit.cleanup commit.gpgsign commit.status commit.verbose committer.email committer.name
    commitgraph.generationversion commitgraph.readchangedpaths
    core.abbrev core.autocrlf core.bare core.bigfilethreshold core.checkstat core.commentchar
    core.commitgraph core.compression core.deltabasecachelimit core.eol core.filemode
    core.filesreflocktimeout core.fscache core.fsync core.fsyncmethod core.fsyncobjectfiles
    core.hidedotfiles core.ignorecase core.logallrefupdates core.longpaths core.loosecompression
    core.multipackindex core.packedgitlimit core.packedgitwindowsize core.precomposeunicode
    core.preloadindex core.quotepath core.repositoryformatversion core.safecrlf
    core.sharedrepository core.sparsecheckout core.sparsecheckoutcone core.splitindex core.symlinks
    core.trustctime core.untrackedcache core.warnambiguousrefs core.whitespace
    credential.usehttppath credential.username credential.*.usehttppath credential.*.username
    diff.algorithm diff.autorefreshindex diff.colormoved diff.colormovedws diff.context
    diff.indentheuristic diff.interhunkcontext diff.mnemonicprefix diff.noprefix diff.relative
    diff.renamelimit diff.renames diff.statgraphwidth diff.suppressblankempty
    diff.wserrorhighlight
    extensions.objectformat extensions.partialclone extensions.preciousobjects
    extensions.relativeworktrees extensions.worktreeconfig
    feature.experimental feature.manyfiles
    fetch.fsckobjects fetch.output fetch.prune fetch.prunetags
    fetch.showforcedupdates fetch.writecommitgraph
    gc.auto gc.autodetach gc.pruneexpire gc.reflogexpire gc.reflogexpireunreachable
    gc.worktreepruneexpire
    gitflow.*.base gitflow.*.bugfix gitflow.*.develop gitflow.*.feature gitflow.*.hotfix
    gitflow.*.master gitflow.*.release gitflow.*.support gitflow.*.versiontag gitreview.username
    git-town.main-branch git-town.perennial-branches git-town-branch.*.parent
    gpg.format grep.column grep.extendedregexp grep.fullname grep.linenumber grep.patterntype
    gui.geometry gui.wmstate
    http.extraheader http.postbuffer http.version http.*.extraheader
    i18n.commitencoding i18n.logoutputencoding
    index.recordendofindexentries index.skiphash index.sparse index.version
    init.defaultbranch lfs.repositoryformatversion lfs.*.access lfs.*.locksverify
    log.abbrevcommit log.date log.decorate log.diffmerges log.follow log.mailmap log.showroot
    maintenance.auto maintenance.strategy
    merge.conflictstyle merge.directoryrenames merge.ff merge.log merge.renamelimit merge.renames
    merge.stat merge.verbosity
    notes.displayref notes.rewriteref
    pack.compression pack.depth pack.packsizelimit pack.usesparse pack.window
    pack.windowmemory pack.writebitmaphashcache pack.writereverseindex
    protocol.version pull.ff pull.rebase
    push.autosetupremote push.default push.followtags
    rebase.abbreviatecommands rebase.autosquash rebase.autostash rebase.missingcommitscheck
    rebase.stat rebase.updaterefs
    receive.denycurrentbranch receive.denydeletes receive.denynonfastforwards
    remote.pushdefault remote.*.fetch remote.*.followremotehead remote.*.mirror
    remote.*.partialclonefilter remote.*.promisor remote.*.prune
    remote.*.prunetags remote.*.push remote.*.pushurl remote.*.skipdefaultupdate
    remote.*.skipfetchall remote.*.tagopt remote.*.url
    repack.usedeltabaseoffset repack.writebitmaps rerere.autoupdate rerere.enabled
    sparse.expectfilesoutsideofpatterns stash.showpatch stash.showstat
    status.aheadbehind status.branch status.relativepaths status.renames status.short
    status.showstash status.showuntrackedfiles
    submodule.active submodule.*.active submodule.*.branch submodule.*.ignore
    submodule.*.url
    tag.gpgsign tag.sort transfer.fsckobjects
    user.email user.name user.signingkey user.useconfigonly versionsort.suffix
    worktree.guessremote worktree.userelativepaths
    """.split()  # noqa: SIM905 -- a table to be read
)
# Notes of other programs. Git has no setting of these two sections that begins like this.
_NOTES = re.compile(r"(?:branch|remote)\.\*\.(?:gh|github|gk|glab|vscode)-[a-z0-9-]+")
_INERT_SECTIONS = frozenset(("advice", "color"))

_BY_PLACE: dict[str, SettingKind] = {
    "blame.ignorerevsfile": "file",
    "core.hookspath": "hooks",
    "core.worktree": "work tree",
}
# By value: any other names a program or a place, or starts thousands of processes.
_FEW = "-1|[0-9]|[1-5][0-9]|6[0-4]"
_BY_VALUE = {
    "checkout.workers": _FEW,
    "fetch.parallel": _FEW,
    "index.threads": f"{_FEW}|true|false",
    "pack.threads": _FEW,
    "submodule.fetchjobs": _FEW,
    "extensions.refstorage": "files|reftable",
    "submodule.*.update": "checkout|rebase|merge|none",
}
# A name among git's own tools, whose files git would otherwise take from anywhere.
_TOOLS = frozenset(("diff.guitool", "diff.tool", "merge.guitool", "merge.tool"))
_TOOL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_SWITCH = "true|false|yes|no|on|off|1|0|"

_GUARDED = frozenset(("core.fsmonitor", "status.submodulesummary", "submodule.recurse"))


def kind_of(name: str, value: str) -> SettingKind:
    """What a setting of a repository's own can do; `name` as git lists it.

    "work tree", "file" and "hooks" depend on where they lead; a "tool" is started only by
    verbs that open one; "foreign" is all that is not known.
    """
    section, _, rest = name.lower().partition(".")
    # A subsection may hold anything, dots too.
    _, dot, last = rest.rpartition(".")
    form = f"{section}.*.{last}" if dot else f"{section}.{last}"
    if form in _BY_PLACE:
        return _BY_PLACE[form]
    if form in _TOOLS:
        return "tool" if _TOOL.fullmatch(value) else "foreign"
    wanted = _SWITCH if section == "pager" else _BY_VALUE.get(form)
    if wanted is not None:
        return "inert" if re.fullmatch(wanted, value, re.IGNORECASE) else "foreign"
    if form in _INERT or section in _INERT_SECTIONS or _NOTES.fullmatch(form):
        return "inert"
    return "guarded" if form in _GUARDED else "foreign"


# Settings that win over the repository's. Not every git hands them on to the one that it starts in
# a submodule (2.39 does), so submodules are checked as if none did (repository_check.py).
_OVERRIDES = {
    "core.fsmonitor": "false",
    # A clone can bring a bare repository, with any settings, in a subfolder.
    "safe.bareRepository": "explicit",
    # The commit of a submodule is shown; whether its files changed, only a git there can find out.
    "diff.ignoreSubmodules": "dirty",
    "fetch.recurseSubmodules": "false",
    "push.recurseSubmodules": "no",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
}
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat"}
# Missing objects would be fetched, by programs that the repository names (a promisor remote).
_NO_LAZY_FETCH = {"GIT_NO_LAZY_FETCH": "1"}
# For a git that does not know that variable, too, there is then no way to fetch.
_ALONE = {"GIT_ALLOW_PROTOCOL": "none"}
# Not `file`: a repository would name others of the user's. Not `ext` and helpers: programs.
_CONNECTED = {"GIT_ALLOW_PROTOCOL": "http:https:ssh:git"}
_LOOKING = {"GIT_OPTIONAL_LOCKS": "0"}
_NUMBERED = ("GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_")
_ELSEWHERE = frozenset(
    """
    GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_ATTR_SOURCE GIT_CEILING_DIRECTORIES GIT_COMMON_DIR
    GIT_CONFIG GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_DIR GIT_GRAFT_FILE
    GIT_IMPLICIT_WORK_TREE GIT_INDEX_FILE GIT_NAMESPACE GIT_OBJECT_DIRECTORY GIT_PREFIX
    GIT_REPLACE_REF_BASE GIT_SHALLOW_FILE GIT_WORK_TREE
    """.split()  # noqa: SIM905 -- a table to be read
)


@dataclass(frozen=True, slots=True)
class GitGuard:
    """What a git may do: by default it only looks."""

    looking: bool = True
    """It changes nothing, and so it fetches nothing either."""
    connecting: bool = False
    """Its verb is one that talks to another repository."""
    fetching: bool = False
    """Its verb is one that fetches, and so may fetch what is missing, too."""
    hooks: str | None = os.devnull
    """The only folder of hooks that counts; None where git itself chooses."""

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """These variables with the guard's, and without those that point git elsewhere."""
        others = {
            name: text
            for name, text in environ.items()
            if name not in _ELSEWHERE and not name.startswith(_NUMBERED)
        }
        settings = [*_settings_in(environ), *_OVERRIDES.items()]
        if self.hooks is not None:
            settings.append(("core.hooksPath", self.hooks))
        numbered = _numbered(settings)
        means = dict(_CONNECTED if self.connecting else _ALONE)
        means |= {} if self.fetching else _NO_LAZY_FETCH
        means |= _LOOKING if self.looking else {}
        return {**others, "PATH": absolute_path(environ), **numbered, **_QUIET, **means}


# What a plain look at a folder starts, and what a clone can bring for it.
_FOR_CLIENTS = ("core.fsmonitor", "safe.bareRepository")


def git_settings_for_clients(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for a client in a folder that nobody trusted: it asks git there by itself.

    Its git starts no monitor that a repository names, and takes no bare one for a repository. All
    else stays as it is: the agent works with that git, too.
    """
    return _numbered([*_settings_in(environ), *((name, _OVERRIDES[name]) for name in _FOR_CLIENTS)])


def _numbered(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    numbered = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings):
        numbered |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return numbered


def _settings_in(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The user's own settings among the variables, as far as they are whole."""
    count = environ.get("GIT_CONFIG_COUNT", "")
    for number in range(int(count) if count.isdecimal() and len(count) < 4 else 0):
        name = environ.get(f"GIT_CONFIG_KEY_{number}")
        value = environ.get(f"GIT_CONFIG_VALUE_{number}")
        if name is None or value is None:
            return
        yield name, value
