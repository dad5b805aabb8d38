"""Make a conversation that was partly held with another model fit for Claude again.

Rules: (1) bytes in which nothing is wrong stay as they are; (2) every change is noted.
Not here: the way there (openai_chat/, openai_responses/).
"""
