"""OpenAI's Chat Completions: what is asked and answered in it, in place of Anthropic's dialect.

Rules: as in neutral/.
Not here: OpenAI's Responses (openai_responses/).
"""
