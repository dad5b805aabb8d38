"""What both OpenAI dialects share when they stand in for Anthropic's: reading, ids, writing back.

Rules: (1) pure: the same bytes give the same bytes; (2) every field is carried, noted or refused.
Not here: the words of one dialect (openai_chat/, openai_responses/), bytes that are passed on
untranslated (the flat files of this room).
"""
