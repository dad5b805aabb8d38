// A page for one run, and one for one agent: attempts, failures with evidence, waits, cost, the way on.

import { dim, h, link, runAt } from "./dom.js";
import { now, state } from "./feed.js";
import { resource, runOrders, stateWord, sums, tree } from "./flows.js";
import { dollars, hourWithSeconds, length, moment, number, plural } from "./words.js";

const asked = { address: "", changes: -1, told: null, failed: "" };
const EVERY = 5;

/** Ask for the page's facts again, when it was opened and every few seconds that it stays open. */
export async function ask(address, query, redraw) {
	if (asked.address === address && state.changes - asked.changes < EVERY) return;
	if (asked.address !== address) Object.assign(asked, { told: null, failed: "" });
	Object.assign(asked, { address, changes: state.changes });
	try {
		const answer = await fetch(`/_jackline/${query}`);
		const told = await answer.json();
		if (asked.address !== address) return;
		Object.assign(asked, answer.ok ? { told, failed: "" } : { failed: told.error?.message || `HTTP ${answer.status}` });
	} catch {
		asked.failed = "The service did not answer.";
	}
	redraw();
}

const back = () => h("p", null, h("a", { href: "#/" }, "← all"));
const waiting = () => h("section", { class: "panel detail", key: "detail" }, back(), dim(asked.failed || "…"));
const table = (caption, heads, rows) => h("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": caption }, h("table", null, h("caption", null, caption),
	h("thead", null, h("tr", null, heads.map((word) => h("th", { scope: "col" }, word)))), h("tbody", null, rows.map((row) => h("tr", null, row.map((cell) => h("td", null, cell)))))));

export function runPage() {
	const run = asked.told;
	if (!run?.run) return waiting();
	const notes = run.notes.slice(-100).reverse();
	return h("section", { class: "panel detail", key: "detail", "aria-label": `Run ${run.run}` }, back(),
		h("div", { class: "row" }, h("h2", null, run.flow, " ", h("small", null, run.run)), stateWord(run.state, run.wake_at)),
		h("p", null, sums(run)), run.why && h("p", null, run.why),
		run.budget && dim(`budget: ${run.budget.dollars == null ? "" : dollars(run.budget.dollars)} ${run.budget.tokens == null ? "" : `${number(run.budget.tokens)} tokens`}`),
		h("p", { class: "twin" }, `jackline show ${run.run}`), h("div", { class: "orders" }, runOrders(run)),
		run.can.includes("resume") && h("p", null, "To go on: ", h("code", null, `jackline resume ${run.run}`)),
		tree(run), run.resources.map((each) => resource(each.name, each)),
		notes.length ? table(`log of the run${run.more_notes ? `, ${number(run.more_notes)} older lines in jackline logs` : ""}`, ["when", "what", "who", "more"],
			notes.map((note) => [hourWithSeconds(note.at), note.what, note.label, note.says || note.trouble || note.why || ""])) : null);
}

export function agentPage(session, agent) {
	const told = asked.told;
	if (!told?.sums) return waiting();
	const row = state.agents.get(`${session}|${agent}`);
	const { flow } = told;
	return h("section", { class: "panel detail", key: "detail", "aria-label": "Agent" }, back(),
		h("div", { class: "row" }, h("h2", null, flow?.label || state.labels[agent] || agent || "main", " ", h("small", null, `session ${session}`)), row ? stateWord(row.doing, row.until) : null),
		row?.why && h("p", null, row.why),
		h("p", null, `${plural(told.sums.calls, "call")} in the last day, ${plural(told.sums.attempts, "attempt")}, ${told.sums.lost} passed on as failed · waited ${length(told.sums.waited)} · ${number(told.sums.tokens)} tokens · ${dollars(told.sums.cost)}${told.sums.unpriced ? ", some models without a known price" : ""}`),
		flow && h("p", null, "Part of run ", link(runAt(flow.run), flow.run), `: ${flow.state}${flow.ending ? `, ${flow.ending}` : ""}${flow.says ? `. ${flow.says}` : ""}`),
		h("p", null, wayOn(row, flow, session)),
		told.attempts.length ? table("attempts that failed", ["when", "kind", "what was seen", "status", "request id", "lane", "resets"],
			told.attempts.map((each) => [hourWithSeconds(each.at), each.sub ? `${each.kind}, ${each.sub}` : each.kind, each.why, each.status ?? "none", each.request_id || "none", each.lane, each.resets_at ? moment(each.resets_at, now()) : ""])) : dim("No attempt failed."),
		told.calls.length ? table("calls", ["when", "outcome", "attempts", "waited", "took", "tokens", "cost", "lane"],
			told.calls.map((each) => [hourWithSeconds(each.at), each.outcome, each.attempts, length(each.waited), length(each.took), number(each.tokens), each.cost == null ? "unknown" : dollars(each.cost), each.lane])) : null);
}

function wayOn(row, flow, session) {
	if (row?.until) return `Nothing to do: its call waits in the gateway and goes on at ${moment(row.until, now())}.`;
	if (flow && flow.state !== "done") return ["To go on: ", h("code", null, `jackline resume ${flow.run}`)];
	if (row && ["answering", "queued", "throttled", "parked", "upstream down"].includes(row.doing)) return "Nothing to do: its call is under way.";
	return session && !flow ? ["If its client has ended, Claude Code goes on with: ", h("code", null, `jackline claude --resume ${session}`)] : "It is done.";
}
