"""Run the command line as `python -m jackline`, for places where the script is not on PATH.

Rules: `-m` has Python import from the working folder first, which may be a stranger's repository:
it is taken off the path before anything else is imported. Only `-P` keeps out a folder there that
is called `jackline` itself, so Jackline starts itself with it (programs.py).
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]

from jackline.quick.entry import main

main()
