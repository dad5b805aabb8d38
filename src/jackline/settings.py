"""Declare a setting once: default, meaning, notation, bounds, and what a project's file may do.

Rules: (1) the field of a frozen settings class is the declaration; config/ derives its key in
`jackline.toml`, its variable, its checks, `config show`, the JSON Schema and the reference page;
(2) a field without `setting` cannot be configured; (3) a setting that does not declare what a
project's file may do with it is closed to such files.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from enum import Enum
from typing import Any

SETTING = "setting"
"""Where the metadata of a field has its declaration."""


class InProject(Enum):
    """What a project's file may do with a setting."""

    # The default: it could move data, code, credentials, addresses or files, or loosen a brake.
    NEVER = "never"
    FREE = "free"
    # A limit: only a lower one than holds without the project's file.
    LOWER = "lower"
    # A list: only more entries than hold without the project's file, MOST_MORE at most.
    MORE = "more"
    # A model: only one whose price is known, wherever a limit in dollars holds.
    PRICED = "priced"
    # After the user has agreed to the file's exact content (`jackline trust`).
    CONSENT = "consent"


MOST_MORE = 100
"""So many entries a project's file may add to a list; some are walked for every call."""
LONGEST_MORE = 200
"""Characters of such an entry."""


class Form(Enum):
    """How a value is written where its type does not say all; config/ has a check for each."""

    PLAIN = "plain"
    DURATION = "duration"
    SIZE = "size"
    NAME = "name"
    MODEL = "model"
    HOST_NAME = "host name"
    URL = "url"
    HOURS = "hours"
    # A path; a relative one is seen from the folder of the file that it is written in.
    PATH = "path"
    ABSOLUTE_PATH = "absolute path"
    # Where a secret is stored (env:NAME, file:PATH, cmd:COMMAND); settings hold the secret.
    REFERENCE = "reference"
    # The same, but settings hold the reference: whoever uses it looks it up then.
    UNRESOLVED = "unresolved reference"
    # A reference, or else an address without a secret in it.
    PROXY = "proxy"
    WEBHOOK = "webhook"
    # A reference, or else a word of `providers.Credential`.
    CREDENTIAL = "credential"
    # A table of headers, whose values may be references.
    HEADERS = "headers"


HIDDEN = (Form.REFERENCE, Form.PROXY, Form.WEBHOOK, Form.HEADERS)
"""Forms of fields that may hold a secret, which `repr` leaves out."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one setting; of lists and tables, `form` and bounds are of each entry."""

    doc: str
    form: Form = Form.PLAIN
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    # The words that it may be, if its type does not list them.
    choices: tuple[str, ...] = ()
    in_project: InProject = InProject.NEVER
    # The short flag and the short variable, for what is typed daily.
    flag: str = ""
    variable: str = ""
    # A running service does not follow a change.
    needs_restart: bool = False


def setting(default: Any, doc: str, form: Form = Form.PLAIN, **declared: Any) -> Any:
    """A field of a settings class that users may set; `declared` are further fields of `Setting`.

    With dataclasses' MISSING as its default, it has no value until it is set.
    """
    metadata = {SETTING: Setting(doc, form, **declared)}
    shown = form not in HIDDEN
    if default is MISSING:
        return field(repr=shown, metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=dict, repr=shown, metadata=metadata)
    return field(default=default, repr=shown, metadata=metadata)
