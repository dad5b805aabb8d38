// A page for one run, and one for one agent: attempts, failures, waits, cost, the way on.

import { detail, dim, h, link, p, runAt, table } from "./dom.js";
import { now, state } from "./feed.js";
import { callOrders, resource, runOrders, stateWord, sums, tree } from "./flows.js";
import { dollars, exact, length, moment, number, plural } from "./format.js";

const asked = { address: "", changes: -1, told: null, failed: "" };
const EVERY = 5;
const WAITS = ["answering", "queued", "throttled", "parked", "upstream down"];

/** Ask for the page's facts again, when it was opened and every few seconds that it stays open. */
export async function ask(address, query, redraw) {
	if (asked.address === address && state.changes - asked.changes < EVERY) return;
	if (asked.address !== address) Object.assign(asked, { told: null, failed: "" });
	Object.assign(asked, { address, changes: state.changes });
	try {
		const answer = await fetch(`/_jackline/${address.split("/")[1]}?${query}`);
		const told = await answer.json();
		if (asked.address !== address) return;
		Object.assign(asked, answer.ok ? { told, failed: "" } : { failed: told.error?.message || `HTTP ${answer.status}` });
	} catch {
		asked.failed = "The service did not answer.";
	}
	redraw();
}

const waiting = () => detail("…", dim(asked.failed || "…"));

export function runPage() {
	const run = asked.told;
	if (!run?.run) return waiting();
	const notes = run.notes.slice(-100).reverse();
	return detail(`Run ${run.run}`,
		h("div.row", h("h2", run.flow, " ", h("small", run.run)), stateWord(run.state, run.wake_at)),
		p(sums(run)), run.why && p(run.why),
		run.budget && dim(`budget: ${run.budget.dollars == null ? "" : dollars(run.budget.dollars)} ${run.budget.tokens == null ? "" : `${number(run.budget.tokens)} tokens`}`),
		h("p.twin", `jackline show ${run.run}`), h("div.orders", runOrders(run)),
		run.can.includes("resume") && p("To go on: ", h("code", `jackline resume ${run.run}`)),
		tree(run), run.resources.map((each) => resource(each.name, each)),
		table(`log of the run${run.more_notes ? `, ${number(run.more_notes)} older lines in jackline logs` : ""}`, ["when", "what", "who", "more"],
			notes.map((note) => [exact(note.at), note.what, note.label, note.says || note.trouble || note.why || ""])));
}

export function agentPage(session, agent) {
	const told = asked.told;
	if (!told?.sums) return waiting();
	const row = state.agents.get(`${session}|${agent}`);
	const { flow, sums: sum, client } = told;
	const run = state.runs[flow?.run];
	return detail("Agent",
		h("div.row", h("h2", flow?.label || state.labels[agent] || agent || "main", " ", h("small", `session ${session}`)), row && stateWord(row.state, row.until)),
		row?.why && p(row.why),
		p(`${plural(sum.calls, "call")} in the last day, ${plural(sum.attempts, "attempt")}, ${sum.lost} passed on as failed · waited ${length(sum.waited)} · ${number(sum.tokens)} tokens · ${dollars(sum.cost)}${sum.unpriced ? ", some models without a known price" : ""}`),
		told.lapsed && p(told.lapsed),
		client && p(`Its client says: ${client.name && `${client.name}, `}${plural(client.requests, "call")}, ${client.errors} failed · ${number(client.tokens)} tokens · ${dollars(client.dollars)}`),
		flow && p("Part of run ", link(runAt(flow.run), flow.run), `: ${flow.state}${flow.ending ? `, ${flow.ending}` : ""}${flow.says ? `. ${flow.says}` : ""}`),
		p(wayOn(row, flow, run, session)),
		run && [["this agent:", callOrders(run, flow)], ["its run:", runOrders(run)]].map(([whose, orders]) => orders.some(Boolean) && h("div.orders", whose, orders)),
		table("attempts that failed", ["when", "kind", "what was seen", "status", "request id", "lane", "resets"],
			told.attempts.map((each) => [exact(each.at), each.sub ? `${each.kind}, ${each.sub}` : each.kind, each.why, each.status ?? "none", each.request_id || "none", each.lane, each.resets_at ? moment(each.resets_at, now()) : ""])) || dim("No attempt failed."),
		table("calls", ["when", "outcome", "attempts", "waited", "took", "tokens", "cost", "lane"],
			told.calls.map((each) => [exact(each.at), each.outcome, each.attempts, length(each.waited), length(each.took), number(each.tokens), each.cost == null ? "unknown" : dollars(each.cost), each.lane])),
		table("tools, as its client tells them", ["tool", "runs", "failed", "took"],
			Object.entries(client?.tools || {}).map(([name, tool]) => [name, number(tool.ok + tool.failed), number(tool.failed), length(tool.seconds)])));
}

function wayOn(row, flow, run, session) {
	if (run?.state === "parked" && run.wake_at) return `Nothing to do: its run wakes at ${moment(run.wake_at, now())}.`;
	if (row?.until) return `Nothing to do: its call waits in the gateway and goes on at ${moment(row.until, now())}.`;
	if (flow ? run?.state === "running" : WAITS.includes(row?.state)) return "Nothing to do: it is under way.";
	if (flow) return flow.state === "done" ? "It is done." : ["To go on: ", h("code", `jackline resume ${flow.run}${flow.by_hand ? ` --only ${flow.task}` : ""}`)];
	return session && ["If its client has ended, Claude Code goes on with: ", h("code", `jackline claude --resume ${session}`)];
}
