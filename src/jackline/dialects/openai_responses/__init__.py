"""OpenAI's Responses: what is asked and answered in it, in place of Anthropic's dialect.

Laws: as in neutral/.
Not here: OpenAI's Chat Completions (openai_chat/).
"""
