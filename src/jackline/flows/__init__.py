"""Durable workflows of agents: what is finished stays finished, by key, across any crash.

    authoring/   what a flow is written with: agent, step, phase, parallel, flow, ctx
    execution/   one run in one process: its gate, its agents and its steps
    cleanup/     hooks and rented resources, at every end
    store/       where runs are saved: the contract, and SQLite

Rules: (1) a result is durable before the flow sees it, and the flow sees what a replay would see;
(2) a call is known by run, kind, label and arguments, never by its position; (3) one process owns
a run at a time, and a process that lost it can write nothing more; (4) a quota limit parks the
run, it does not fail it.
Not here: running one agent (agents/), commands for people (cli/).
"""
