// A page for one run, and one for one agent: attempts, failures, waits, cost, the way on.

import { dim, h, link, p, runAt, table } from "./dom.js";
import { now, state } from "./feed.js";
import { resource, retryOne, runOrders, stateWord, sums, tree } from "./flows.js";
import { dollars, exact, length, moment, number, plural } from "./words.js";

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

const back = () => p(h("a", { href: "#/" }, "← all"));
const waiting = () => h("section.panel detail", { key: "detail" }, back(), dim(asked.failed || "…"));

export function runPage() {
	const run = asked.told;
	if (!run?.run) return waiting();
	const notes = run.notes.slice(-100).reverse();
	return h("section.panel detail", { key: "detail", "aria-label": `Run ${run.run}` }, back(),
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
	const { flow } = told;
	const run = state.runs[flow?.run];
	return h("section.panel detail", { key: "detail", "aria-label": "Agent" }, back(),
		h("div.row", h("h2", flow?.label || state.labels[agent] || agent || "main", " ", h("small", `session ${session}`)), row && stateWord(row.doing, row.until)),
		row?.why && p(row.why),
		p(`${plural(told.sums.calls, "call")} in the last day, ${plural(told.sums.attempts, "attempt")}, ${told.sums.lost} passed on as failed · waited ${length(told.sums.waited)} · ${number(told.sums.tokens)} tokens · ${dollars(told.sums.cost)}${told.sums.unpriced ? ", some models without a known price" : ""}`),
		flow && p("Part of run ", link(runAt(flow.run), flow.run), `: ${flow.state}${flow.ending ? `, ${flow.ending}` : ""}${flow.says ? `. ${flow.says}` : ""}`),
		p(wayOn(row, flow, run, session)),
		run && h("div.orders", retryOne(run, flow), runOrders(run)),
		table("attempts that failed", ["when", "kind", "what was seen", "status", "request id", "lane", "resets"],
			told.attempts.map((each) => [exact(each.at), each.sub ? `${each.kind}, ${each.sub}` : each.kind, each.why, each.status ?? "none", each.request_id || "none", each.lane, each.resets_at ? moment(each.resets_at, now()) : ""])) || dim("No attempt failed."),
		table("calls", ["when", "outcome", "attempts", "waited", "took", "tokens", "cost", "lane"],
			told.calls.map((each) => [exact(each.at), each.outcome, each.attempts, length(each.waited), length(each.took), number(each.tokens), each.cost == null ? "unknown" : dollars(each.cost), each.lane])));
}

function wayOn(row, flow, run, session) {
	if (run?.state === "parked" && run.wake_at) return `Nothing to do: its run wakes at ${moment(run.wake_at, now())}.`;
	if (row?.until) return `Nothing to do: its call waits in the gateway and goes on at ${moment(row.until, now())}.`;
	if (flow ? run?.state === "running" : WAITS.includes(row?.doing)) return "Nothing to do: it is under way.";
	if (flow) return flow.state === "done" ? "It is done." : ["To go on: ", h("code", `jackline resume ${flow.run}`)];
	return session && ["If its client has ended, Claude Code goes on with: ", h("code", `jackline claude --resume ${session}`)];
}
