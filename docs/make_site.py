"""Write the documentation as static files, the same bytes that a gateway serves at /docs/.

    python docs/make_site.py [FOLDER]        # default: site

Rules: (1) it needs no network and no other tool; (2) nothing else is in the folder afterwards; (3)
the files work from any address, and from a disk without a server.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from jackline.documentation.handler import Site
from jackline.documentation.sources import Sources


def write_site(into: Path) -> int:
    """Write everything; how many files there are."""
    shutil.rmtree(into, ignore_errors=True)
    site = Site(Sources.installed())
    for address in site.addresses:
        content = site.content(address)
        if content is None:
            raise AssertionError(f"{address} is listed and cannot be made")
        place = into / address
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return len(site.addresses)


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "site")
    print(f"{write_site(folder)} files; open {folder / 'index.html'}")  # noqa: T201 -- its result
