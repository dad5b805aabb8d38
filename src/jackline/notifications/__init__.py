"""Notify a person who is not looking: once for each incident, by the channels that are set.

Rules: (1) one message per incident, not per agent; (2) no prompt, answer, key or token gets into a
message; (3) calls never wait for a message and never fail because of one.
"""
