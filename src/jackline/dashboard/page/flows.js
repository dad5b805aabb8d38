// Runs of flows as trees that fold, what they still hold, and what happened lately.

import { agentAt, beside, dim, h, link, panel, runAt } from "./dom.js";
import { now, state } from "./feed.js";
import { orderButton } from "./orders.js";
import { dollars, hour, hourWithSeconds, length, look, moment, number, plural } from "./words.js";

const opened = new Set();
let redraw = () => {};
export const onFold = (work) => { redraw = work; };

export function flows(filter) {
	const query = filter.q.trim().toLowerCase();
	const runs = Object.values(state.runs).filter((run) => !query || `${run.flow} ${run.run} ${run.state}`.toLowerCase().includes(query) || run.calls.some((call) => call.label.toLowerCase().includes(query))).sort((one, other) => other.created_at - one.created_at);
	const held = Object.entries(state.resources);
	return panel("Flows", "ls", beside(`${runs.filter((run) => run.state === "running").length} running`),
		runs.length ? runs.map(runCard) : dim(query ? "No run fits." : "No runs yet: jackline run FLOW.py"),
		held.length ? h("div", { key: "held" }, h("h3", null, "Still held"), held.map(([key, each]) => resource(key, each))) : null);
}

function runCard(run) {
	const total = Math.max(1, run.done + run.failed + run.running);
	const parts = [["done", run.done], ["go", run.running], ["bad", run.failed]];
	const open = opened.has(run.run);
	return h("article", { key: run.run, class: "run", "data-run": run.run },
		h("div", { class: "row" }, h("h3", null, link(runAt(run.run), run.flow), " ", h("small", null, run.run)), stateWord(run.state, run.wake_at)),
		h("div", { class: "share", role: "img", "aria-label": `${run.done} done, ${run.running} running, ${run.failed} failed` }, parts.filter(([, many]) => many).map(([colour, many]) => h("i", { class: colour, "--share": many / total }))),
		dim(sums(run)),
		run.why && dim(run.why),
		h("div", { class: "orders" }, runOrders(run)),
		run.calls.length ? h("details", { open, ontoggle: (event) => fold(run.run, event.target.open) }, h("summary", null, plural(run.calls.length + run.more, "call")), open ? tree(run) : null) : null);
}

function fold(run, open) {
	if (opened.has(run) === open) return;
	open ? opened.add(run) : opened.delete(run);
	redraw();
}

export const sums = (run) => `${run.done} done, ${run.running} running, ${run.failed} failed · ${number(run.tokens)} tokens · ${dollars(run.cost)} · began ${moment(run.created_at, now())}`;

export function stateWord(word, until) {
	const [glyph, colour] = look(word);
	return h("span", { class: `state ${colour}` }, `${glyph} ${word}${until ? ` until ${moment(until, now())}` : ""}`);
}

/** Calls by phase, each with its outcome. */
export function tree(run) {
	const phases = new Map();
	for (const call of run.calls) phases.set(call.phase, [...(phases.get(call.phase) || []), call]);
	return [...phases].map(([phase, calls]) => h("div", { key: phase, class: "phase" }, phase && h("h4", null, phase), h("ul", { class: "tree" }, calls.map((call) => leaf(run, call)))));
}

function leaf(run, call) {
	const [glyph, colour] = look(call.state);
	const name = call.kind === "agent" && call.task ? link(agentAt(sessionOf(call), call.task), call.label) : call.label;
	const words = call.state === "failed" ? `${call.ending || "failed"}${call.says ? `: ${call.says}` : ""}` : call.state === "running" ? `under way, ${length(Math.max(0, now() - call.began))}` : `${number(call.tokens)} tokens`;
	const again = call.state === "failed" && run.can.includes("retry") ? retryOne(run, call) : null;
	return h("li", { key: `${call.task} ${call.label}` }, h("span", { class: colour, "aria-hidden": "true" }, glyph), h("span", null, name), beside(`${call.state} · ${words}`), again);
}

/** The timeline knows the session of an agent that is under way, its outcome that of one that ended. */
function sessionOf(call) {
	if (call.session) return call.session;
	for (const agent of state.agents.values()) if (agent.agent === call.task) return agent.session;
	return "";
}

export function runOrders(run) {
	const order = (verb, word, title, says) => run.can.includes(verb) && orderButton(word, () => ({ title, says, verb: word, path: `run/${verb}`, body: { run: run.run }, twin: `jackline ${verb} ${run.run}` }), `${verb} run ${run.run}`);
	return [
		order("resume", "resume", `Resume ${run.flow} ${run.run}`, `A process of its own goes on with the run. Its ${run.done} finished calls answer from the store and cost nothing; ${run.failed + run.running} are gone on with.`),
		order("retry", "retry", `Retry ${run.flow} ${run.run}`, `The ${plural(run.failed, "failed call")} run again, and nothing else.`),
		order("cancel", "cancel", `Cancel ${run.flow} ${run.run}`, `The run ends for good, with its clean-up. What is finished stays to be read; ${plural(run.running, "call")} under way stop.`),
	];
}

function retryOne(run, call) {
	return orderButton("retry", () => ({ title: `Retry ${call.label}`, says: `The failed calls labelled ${call.label} run again, and nothing else.`, verb: "retry", path: "run/retry", body: { run: run.run, only: call.label }, twin: `jackline retry ${run.run} --only ${call.label}` }), `retry ${call.label}`);
}

export function resource(key, each) {
	const release = each.can.includes("release") ? orderButton("give back", () => ({ title: "Give back what is left over", says: `${each.name}, and all else that ended runs still hold, is given back now by the command that its flow names.`, verb: "Give back", path: "run/release", body: {}, twin: "jackline resources --retry" }), `give back ${each.name}`) : null;
	const trouble = each.trouble ? `, its release failed: ${each.trouble}` : "";
	return h("p", { key, class: each.trouble ? "bad" : "dim" }, `${each.name}: ${each.state} by ${each.run} for ${length(now() - each.taken_at)}${trouble} `, release);
}

export function events() {
	const all = Object.entries(state.events).sort(([, one], [, other]) => other.at - one.at);
	return panel("What happened", "logs ID -f", null,
		all.length ? h("ol", { class: "news" }, all.map(([key, event]) => h("li", { key }, h("time", { title: hourWithSeconds(event.at) }, hour(event.at)), h("div", null, h("b", null, event.who), h("p", null, event.what))))) : dim("Nothing yet."));
}
