"""Point clients at the gateway in their own settings files, and undo it.

Rules: (1) everything else in a file stays, and earlier values are restored; (2) the new content
comes from pure functions, is shown first, and replaces the file in one step, with a backup beside
it; (3) a value that somebody has changed since is left alone, and reported.
"""
