"""Find root causes in transcripts: group the failures, judge the agents, render the report.

Rules: (1) judging starts from `AgentStory` values and is pure; (2) only `failures` matches message
texts; (3) content stays hidden unless the user wants it.
"""
