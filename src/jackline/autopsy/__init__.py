"""Find root causes in transcripts: group the failures, judge the agents, render the report.

Rules: (1) judging starts from `AgentStory` values and is pure; (2) no message text is matched here,
only `failures` does that; (3) content stays hidden unless the user wants it.
Not here: reading the files (transcripts/), the command line (cli/why.py).
"""
