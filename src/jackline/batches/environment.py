"""Give commands the environment they need, without the secrets of whoever started us.

Laws: (1) pure; (2) a name that sounds like a secret is dropped, and so is a value that holds a
login; what a command truly needs, its caller adds by name; (3) nothing waits for a person: no
pager, no password prompt, no colours.
Not here: starting commands (processes.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_SOUNDS_SECRET = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|KEY|KEYS|TOKEN|TOKENS|SECRET|SECRETS|PASSWORD"
    r"|PASSWD|PASSPHRASE|PASS|PWD|PAT|CREDENTIAL|CREDENTIALS|CREDS|COOKIE|AUTH|BEARER|DSN|SIGNATURE"
    r"|KEY_ID|SALT|JWT|CUSTOM_HEADERS)(?:_\w*)?$",
    re.IGNORECASE,
)
_HOLDS_SECRET_WORD = re.compile(r"SECRET|PASSWORD|CREDENTIAL|APIKEY|AUTHTOKEN", re.IGNORECASE)
_HOLDS_LOGIN = re.compile(r"://[^/\s@]+:[^/\s@]+@")
_LOOKS_LIKE_KEY = re.compile(r"\b(?:sk-|ghp_|gho_|github_pat_|xox[abp]-|AKIA|ASIA|ya29\.|eyJ)\w{8}")

# Names that sound like a secret and hold none, and without which ordinary tools fail.
_HARMLESS = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY", "GPG_TTY", "KEYBOARD"})

_QUIET = {
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "TERM": "dumb",
}


def is_secret(name: str, value: str) -> bool:
    """Whether a variable is to be kept from commands."""
    if name.upper() in _HARMLESS:
        return False
    if name == "GIT_CONFIG_COUNT":  # the names that it counts sound secret: git fails without them
        return True
    if _SOUNDS_SECRET.search(name) or _HOLDS_SECRET_WORD.search(name):
        return True
    return bool(_HOLDS_LOGIN.search(value) or _LOOKS_LIKE_KEY.search(value))


def without_secrets(environ: Mapping[str, str], keep: Iterable[str] = ()) -> dict[str, str]:
    """The environment for a command; `keep` names what passes although it sounds secret."""
    kept = frozenset(keep)
    passed = {
        name: value for name, value in environ.items() if name in kept or not is_secret(name, value)
    }
    return {**passed, **_QUIET}
