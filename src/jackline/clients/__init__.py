"""Point clients at the gateway in their own settings files, and back again.

Rules: (1) everything else in a file stays as it is, and earlier values are restored; (2) the new
content comes from pure functions, is shown, and is written whole, with a backup beside it; (3) a
value that somebody has changed since is left alone, and reported.
Not here: starting clients (cli/), the variables themselves (agents/claude_code/environment.py).
"""
