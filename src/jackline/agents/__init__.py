"""Carries one agent to its `Outcome`: runners, structured output, what it leaves behind.

Laws: (1) an agent's every model answer is durable before the agent acts on it; (2) an ending always
has its name (`terminated_by`) and its evidence; (3) a runner knows nothing of flows: it is given a
`Notebook` to write in, a `Leave` to ask before each call, and a `Model` to ask.
Not here: many agents and their run (flows/), running tools side by side (batches/).
"""
