"""Know the settings of a git repository that can do no harm, whoever wrote them.

Rules: (1) pure; (2) a list of what is allowed: git has hundreds of settings, and its releases add
some that start a program or name a file or host, so what is not known here is foreign; (3) "inert"
counts on the protocols that guard.py allows, which git hands on to the git that it
starts in submodules; "guarded" on the settings that it overrides, which not every git hands on
(docs/decisions/060).
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["inert", "guarded", "work tree", "file", "hooks", "tool", "foreign"]

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

_BY_PLACE: dict[str, Kind] = {
    "blame.ignorerevsfile": "file",
    "core.hookspath": "hooks",
    "core.worktree": "work tree",
}
# By value: what else may stand there names a program or a place.
# By value, too: how many processes or threads git starts, and none of thousands.
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


def kind_of(name: str, value: str) -> Kind:
    """What a setting of a repository's own can do; `name` as git lists it.

    "work tree", "file" and "hooks" depend on where they lead; a "tool" is started only by
    verbs that open one; "foreign" is all that is not known.
    """
    section, form = name.partition(".")[0].lower(), _without_subsection(name)
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


def _without_subsection(name: str) -> str:
    """`section.name` or `section.*.name`: a subsection may hold anything, dots too."""
    section, _, rest = name.partition(".")
    _, dot, last = rest.rpartition(".")
    return f"{section}.*.{last}".lower() if dot else f"{section}.{last}".lower()
