"""Find root causes in transcripts: read what agents left behind, judge it, tell it.

Laws: (1) reading ends in `AgentStory` values, judging starts from them; (2) judging is pure; (3) no
message text is matched here, only `failures` does that; (4) content stays hidden unless asked for.
Not here: the command line (cli/why.py).
"""
