// A page for one run, and one for one agent: attempts, failures, waits, cost, what to do next.

import { detail, dim, h, link, p, runAt, table } from "./dom.js";
import { now, state } from "./feed.js";
import { callOrders, resource, runOrders, stateLabel, sums, tree } from "./flows.js";
import { costOf, dollars, exact, length, moment, number, plural } from "./format.js";

const loaded = { address: "", changes: -1, document: null, failed: "" };
const EVERY = 5;
const WAITS = ["answering", "queued", "throttled", "parked", "upstream down"];

/** Load the page's document, when it is opened and every few seconds afterwards. */
export async function load(address, query, redraw) {
	if (loaded.address === address && state.changes - loaded.changes < EVERY) return;
	if (loaded.address !== address) Object.assign(loaded, { document: null, failed: "" });
	Object.assign(loaded, { address, changes: state.changes });
	try {
		const answer = await fetch(`/_jackline/${address.split("/")[1]}?${query}`);
		const document = await answer.json();
		if (loaded.address !== address) return;
		Object.assign(loaded, answer.ok ? { document, failed: "" } : { failed: document.error?.message || `HTTP ${answer.status}` });
	} catch {
		loaded.failed = "The service did not answer.";
	}
	redraw();
}

const waiting = () => detail("…", dim(loaded.failed || "…"));

export function runPage() {
	const run = loaded.document;
	if (!run?.run) return waiting();
	const notes = run.notes.slice(-100).reverse();
	return detail(`Run ${run.run}`,
		h("div.row", h("h2", run.flow, " ", h("small", run.run)), stateLabel(run.state, run.wake_at)),
		p(sums(run)), run.why && p(run.why),
		run.budget && dim(`budget: ${run.budget.dollars == null ? "" : dollars(run.budget.dollars)} ${run.budget.tokens == null ? "" : `${number(run.budget.tokens)} tokens`}`),
		h("p", h("code.twin", `jackline show ${run.run}`)), h("div.orders", runOrders(run)),
		(run.next || run.can.includes("resume")) && p("To go on: ", h("code", run.next || `jackline resume ${run.run}`)),
		tree(run), run.resources.map((each) => resource(each.name, each)),
		table(`log of the run${run.more_notes ? `, ${number(run.more_notes)} older lines in jackline logs` : ""}`, ["when", "what", "who", "more"],
			notes.map((note) => [exact(note.at), note.what, note.label, [note.says || note.trouble || note.why, note.private].filter(Boolean).join(". It said: ")])));
}

export function agentPage(session, agent) {
	const found = loaded.document;
	if (!found?.sums) return waiting();
	const row = state.agents.get(`${session}|${agent}`);
	const { flow, sums: sum, client } = found;
	const run = state.runs[flow?.run];
	return detail("Agent",
		h("div.row", h("h2", flow?.label || state.labels[agent] || agent || "main", " ", h("small", `session ${session}`)), row && stateLabel(row.state, row.until)),
		row?.why && p(row.why),
		p(`${plural(sum.calls, "call")} in the last day, ${plural(sum.attempts, "attempt")}, ${sum.lost} passed on as failed · waited ${length(sum.waited)} · ${number(sum.tokens)} tokens · ${costOf(sum.cost, sum.unpriced)}`),
		found.lapsed && p(found.lapsed),
		client && p(`Its client reports: ${client.name && `${client.name}, `}${plural(client.requests, "call")}, ${client.errors} failed · ${number(client.tokens)} tokens · ${dollars(client.dollars)}`),
		flow && p("Part of run ", link(runAt(flow.run), flow.run), `: ${flow.state}${flow.ending ? `, ${flow.ending}` : ""}${flow.says ? `. ${flow.says}` : ""}`),
		p(nextStep(row, flow, run, session)),
		run && [["this agent:", callOrders(run, flow)], ["its run:", runOrders(run)]].map(([whose, orders]) => orders.some(Boolean) && h("div.orders", whose, orders)),
		table("attempts that failed", ["when", "kind", "what was seen", "status", "request id", "lane", "resets"],
			found.attempts.map((each) => [exact(each.at), each.sub ? `${each.kind}, ${each.sub}` : each.kind, each.why, each.status ?? "none", each.request_id || "none", each.lane, each.resets_at ? moment(each.resets_at, now()) : ""])) || dim("No attempt failed."),
		table("calls", ["when", "outcome", "attempts", "waited", "took", "tokens", "cost", "lane"],
			found.calls.map((each) => [exact(each.at), each.outcome, each.attempts, length(each.waited), length(each.took), number(each.tokens), each.cost == null ? "unknown" : dollars(each.cost), each.lane])),
		table("tools, as its client reports them", ["tool", "runs", "failed", "took"],
			Object.entries(client?.tools || {}).map(([name, tool]) => [name, number(tool.ok + tool.failed), number(tool.failed), length(tool.seconds)])));
}

function nextStep(row, flow, run, session) {
	if (run?.state === "parked" && run.wake_at) return `Nothing to do: its run wakes at ${moment(run.wake_at, now())}.`;
	if (row?.until) return `Nothing to do: its call waits in the gateway and goes on at ${moment(row.until, now())}.`;
	if (flow ? run?.state === "running" : WAITS.includes(row?.state)) return "Nothing to do: it is under way.";
	if (flow) return flow.state === "done" ? "It is done." : ["To go on: ", h("code", `jackline resume ${flow.run}${flow.by_hand ? ` --only ${flow.task}` : ""}`)];
	return session && ["If its client has ended, Claude Code goes on with: ", h("code", `jackline claude --resume ${session}`)];
}
