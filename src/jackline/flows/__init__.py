"""Durable workflows of agents: what is finished stays finished, by key, across any crash.

Laws: (1) a result is durable before the flow sees it, and the flow sees what a replay would see;
(2) a call is known by run, kind, label and arguments, never by its position; (3) one process owns a
run at a time, and one that lost it can write nothing more; (4) a quota wall parks the run, it does
not fail it.
Not here: carrying one agent (agents/), verbs for people (cli/).
"""
