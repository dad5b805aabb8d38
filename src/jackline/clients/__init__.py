"""Point clients at the gateway in their own settings files, and back again.

Laws: (1) everything else in a file stays as it is, and what was there before is put back; (2) the
new content is decided by pure functions, shown, and written whole, with a backup beside it; (3) a
value that someone has changed since is left alone, and told.
Not here: starting clients (cli/), the variables themselves (agents/claude_code/environment.py).
"""
