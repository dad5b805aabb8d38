"""OpenAI's Responses in place of Anthropic's dialect; the rules are those of neutral/.

Not here: Chat Completions (openai_chat/).
"""
