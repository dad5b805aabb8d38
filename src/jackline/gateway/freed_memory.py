"""Keep the memory of past requests for the next ones, where the C library would give it back.

A prompt of 150 KB lives for as long as its call. Given back to the system each time, its pages have
to be fetched and zeroed again for the next prompt, which costs more than all copying of its bytes.

Laws: (1) what is kept is bounded by `KEPT_BYTES`; a single block above `OWN_MAPPING_BYTES` is given
back at once; (2) where the C library has no such setting, nothing happens.
Not here: what is held on purpose (request_reading.py, calls/stitching.py).
"""

from __future__ import annotations

import sys
from functools import cache

KEPT_BYTES = 64 * 1024 * 1024
OWN_MAPPING_BYTES = 4 * 1024 * 1024
# As glibc's malloc.h names them.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3


@cache
def keep_freed_memory() -> bool:
    """Set the C library so, once for the process; whether it could be."""
    if sys.platform != "linux":
        return False
    import ctypes  # noqa: PLC0415 -- only where it is of use

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library than glibc
        return False
    settings = ((_TRIM_THRESHOLD, KEPT_BYTES), (_MMAP_THRESHOLD, OWN_MAPPING_BYTES))
    return all(mallopt(name, value) == 1 for name, value in settings)
