// Runs of flows as trees that fold, what they still hold, and what happened lately.

import { agentAt, beside, dim, h, link, p, panel, runAt } from "./dom.js";
import { now, state } from "./feed.js";
import { orderButton } from "./orders.js";
import { costOf, exact, length, look, moment, number, plural } from "./format.js";

const opened = new Set();
let redraw = () => {};
export const onFold = (work) => { redraw = work; };

export function flows(filter) {
	const query = filter.q.trim().toLowerCase();
	const runs = Object.values(state.runs).filter((run) => [run.flow, run.run, run.state, ...run.calls.map((call) => call.label)].join(" ").toLowerCase().includes(query)).sort((one, other) => other.created_at - one.created_at);
	const held = Object.entries(state.resources);
	return panel("Flows", "ls", beside(`${runs.filter((run) => run.state === "running").length} running`),
		runs.length ? runs.map(runCard) : dim(query ? "No run fits." : "No runs yet: jackline run FLOW.py"),
		held.length > 0 && h("div", h("h3", "Still held"), held.map(([key, each]) => resource(key, each))));
}

function runCard(run) {
	const [done, running, failed] = [run.done + run.steps_done, run.running + run.steps_running, run.failed + run.steps_failed];
	const total = Math.max(1, done + failed + running);
	const parts = [["done", done], [look(run.state)[1], running], ["bad", failed]];
	const open = opened.has(run.run);
	return h("article.run", { key: run.run },
		h("div.row", h("h3", link(runAt(run.run), run.flow), " ", h("small", run.run)), stateLabel(run.state, run.wake_at)),
		h("div.share", { role: "img", "aria-label": run.counts }, parts.filter(([, many]) => many).map(([colour, many]) => h("i", { class: colour, "--share": many / total }))),
		dim(sums(run)),
		run.why && dim(run.why),
		h("div.orders", runOrders(run)),
		run.calls.length > 0 && h("details", { open, ontoggle: (event) => fold(run.run, event.target.open) }, h("summary", "agents and steps"), open && tree(run)));
}

function fold(run, open) {
	if (opened.has(run) === open) return;
	opened.delete(run) || opened.add(run);
	redraw();
}

export const sums = (run) => `${run.counts} · ${number(run.tokens)} tokens · ${costOf(run.cost, run.unpriced)} · began ${moment(run.created_at, now())}`;

export function stateLabel(name, until) {
	const [glyph, colour] = look(name);
	return h("span", { class: `state ${colour}` }, `${glyph} ${name}${until ? ` until ${moment(until, now())}` : ""}`);
}

/** Calls by phase, each with its outcome. */
export function tree(run) {
	const phases = new Map();
	for (const call of run.calls) phases.set(call.phase, [...(phases.get(call.phase) || []), call]);
	return [...phases].map(([phase, calls]) => h("div", { key: phase }, phase && h("h4", phase), h("ul.tree", calls.map((call) => leaf(run, call)))));
}

function leaf(run, call) {
	const shown = call.state === "running" ? run.state : call.state;
	const [glyph, colour] = look(shown);
	const name = call.kind === "agent" && call.task ? link(agentAt(sessionOf(call), call.task), call.label) : call.label;
	const text = call.state === "failed" ? `${call.ending || "failed"}${call.says ? `: ${call.says}` : ""}` : call.state === "running" ? `for ${length(now() - call.began)}` : `${number(call.tokens)} tokens`;
	return h("li", { key: `${call.task} ${call.label}` }, h("span", { class: colour, "aria-hidden": "true" }, glyph), h("span", name), beside(`${shown} · ${text}`), h("span.orders", callOrders(run, call)));
}

/** The timeline knows the session of an agent that is under way, its outcome that of one that ended. */
function sessionOf(call) {
	if (call.session) return call.session;
	for (const agent of state.agents.values()) if (agent.agent === call.task) return agent.session;
	return "";
}

const words = (run, verb) => (verb === "retry" ? `resume ${run.run} --failed` : `${verb} ${run.run}`);
const runOrder = (run, verb, label, says, only, later) => orderButton(verb, label, { says, later, path: `run/${verb}`, body: { run: run.run, only }, twin: `jackline ${words(run, verb)}${only ? ` --only ${only}` : ""}` });

export function runOrders(run) {
	const order = (verb, says) => run.can.includes(verb) && runOrder(run, verb, `${verb} run ${run.run}`, says);
	return [
		order("resume", `A process of its own goes on with the run. What is finished answers from the store and costs nothing: ${run.counts}.`),
		order("retry", `What failed runs again (${plural(run.failed, "agent")}, ${plural(run.steps_failed, "step")}), and nothing else.`),
		order("cancel", `The run ends for good, with its clean-up. What is finished stays to be read; ${plural(run.running, "agent")} under way stop.`),
	];
}

const ONE_AGENT = {
	cancel: "ends now as cancelled, with its clean-up. Its siblings go on, and the flow gets it as failed. A resume of the run does not begin it again, only a resume or retry of this agent does.",
	resume: "goes on at its last complete turn, in the same conversation. Other failed agents stay as they are; whatever else the run has not finished goes on, too.",
	retry: "runs again, and nothing else that failed. Where going on would end alike, it begins anew.",
};

/** Orders about one agent, or about all failed steps of one label. */
export function callOrders(run, call) {
	const one = call.kind === "agent";
	const verbs = one ? call.can : ["retry"].filter((verb) => call.state === "failed" && run.can.includes(verb));
	const says = (verb) => (one ? `${call.label} ${ONE_AGENT[verb]}` : `The failed calls labelled ${call.label} run again, and nothing else.`);
	return verbs.map((verb) => runOrder(run, verb, `${verb} ${call.label}`, says(verb), one ? call.task : call.label, verb === "cancel" && "Its resume undoes it, as soon as no process runs it."));
}

export function resource(key, { name, state: word, run, taken_at: since, trouble, can }) {
	return h("p", { key, class: trouble ? "bad" : "dim" }, `${name}: ${word} by ${run} for ${length(now() - since)}${trouble ? `, its release failed: ${trouble}` : ""} `,
		can.includes("release") && orderButton("release", `release ${name}`, { says: `${name}, and everything else that ended runs still hold, is released now by the command that its flow names.`, verb: "Release it", path: "run/release", body: {}, twin: "jackline resources --retry" }));
}

export function events() {
	const all = Object.entries(state.events).sort(([, one], [, other]) => other.at - one.at);
	return panel("What happened", "logs ID -f", null,
		all.length ? h("ol.news", all.map(([key, event]) => h("li", { key }, h("time", exact(event.at)), h("div", h("b", event.who), p(event.what))))) : dim("Nothing yet."));
}
