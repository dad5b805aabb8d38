"""Name the agent of a flow in a call, so that only this user's installation can have named it.

Rules: (1) the header holds the task's id and a signature of it under the installation key; a name
without the right one is no name; (2) it goes to this user's own gateway only, which sends no header
of ours on, and through no command line, which other users can read; (3) without a key nobody is
named, and nothing else is lost.
"""

from __future__ import annotations

from functools import lru_cache

from jackline.private_files import installation_key, is_signature, key_folder, signature

HEADER = "x-jackline-task"
_PURPOSE = "task of a call"
_LONGEST_TASK = 100


def named_task(task_id: str) -> tuple[tuple[str, str], ...]:
    """The header that names this agent; none where there is no key, or no header can hold the id.

    As pairs, of which there is one at most.
    """
    if not task_id.isascii() or not task_id.isprintable() or len(task_id) > _LONGEST_TASK:
        return ()
    try:
        key = _key_in(key_folder())
    except OSError:
        return ()
    return ((HEADER, f"{task_id}.{signature(key, _PURPOSE, task_id.encode())}"),)


def task_in(key: bytes, value: bytes) -> str | None:
    """The agent that a header's value names; None unless this installation has named it."""
    task, _, proof = value.decode("latin-1").rpartition(".")
    if not task or len(task) > _LONGEST_TASK:
        return None
    return task if is_signature(key, proof, _PURPOSE, task.encode("latin-1")) else None


@lru_cache(maxsize=8)
def _key_in(_folder: str) -> bytes:
    # Reading it checks all folders above: too much for each call.
    return installation_key()
