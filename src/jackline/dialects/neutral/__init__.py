"""What both OpenAI dialects share when they replace Anthropic's: parsing, ids, answers, streams.

Rules: (1) pure: the same bytes give the same bytes; (2) every field is used, noted or refused.
Not here: one dialect (openai_chat.py, openai_responses.py).
"""
