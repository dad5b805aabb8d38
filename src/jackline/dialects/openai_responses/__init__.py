"""OpenAI's Responses: what is asked and answered in it, in place of Anthropic's dialect.

Rules: as in neutral/.
Not here: OpenAI's Chat Completions (openai_chat/).
"""
