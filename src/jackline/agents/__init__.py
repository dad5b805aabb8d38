"""Run one agent to its `Outcome`: runners, structured answers, resume after a crash.

Rules: (1) every model answer is durable before the agent acts on it; (2) an ending always has its
name (`terminated_by`) and its evidence; (3) a runner knows nothing of flows: it gets an `AgentLog`
to write, a `CallGate` to await before each call, and a `Model` to call.
"""
