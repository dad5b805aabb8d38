"""The command line: one file per verb, no logic of its own.

Rules: (1) stdout is data, stderr is talk; (2) a verb's room is imported when the verb runs; (3)
exit codes are those of docs/errors.md.
Not here: anything that a test could not reach without a terminal.
"""
