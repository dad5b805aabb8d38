"""OpenAI's Chat Completions in place of Anthropic's dialect; the rules are those of neutral/.

Not here: OpenAI's Responses (openai_responses/).
"""
