"""The command line: one file per verb or family of verbs, no logic of its own.

Rules: (1) stdout is for results, stderr for messages; (2) the module of a verb is imported when the
verb runs; (3) exit codes are those of docs/errors.md.
"""
