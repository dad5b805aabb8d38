// Runs of flows as trees that fold, what they still hold, and what happened lately.

import { agentAt, beside, dim, h, link, marks, middle, p, panel, runAt } from "./dom.js";
import { now, state } from "./feed.js";
import { stateOf } from "./fleet.js";
import { orderButton } from "./orders.js";
import { costOf, exact, length, look, moment, number, plural, until as untilText } from "./format.js";

const WAITS = ["upstream down", "parked", "throttled", "queued"];
const ENDED = ["finished", "failed", "cancelled"];

const opened = new Set();
let redraw = () => {};
export const onFold = (work) => { redraw = work; };

export function flows(filter) {
	const query = filter.q.trim().toLowerCase();
	const fits = (run) => [run.flow, run.run, run.state, ...run.calls.map((call) => call.label)].join(" ").toLowerCase().includes(query);
	const runs = Object.values(state.runs).filter(fits).sort((one, other) => rank(one) - rank(other) || other.created_at - one.created_at);
	const ended = runs.filter((run) => rank(run) === PAST);
	const waits = waitsByRun();
	const held = Object.entries(state.resources);
	const open = opened.has("ended") !== (ended.length === runs.length && ended.length < 4);
	return panel("Flows", "ls", beside(`${runs.filter((run) => run.state === "running").length} running`),
		runs.length ? runs.filter((run) => rank(run) < PAST).map((run) => runCard(run, waits.get(run.run))) : dim(query ? "No run fits." : "No runs yet: jackline run FLOW.py"),
		ended.length > 0 && h("details.ended", { key: "ended", open, ontoggle: (event) => { if (event.target.open !== open) fold("ended", !opened.has("ended")); } },
			h("summary", `${number(ended.length)} ended: ${[...new Set(ended.map((run) => run.state))].map((name) => `${ended.filter((run) => run.state === name).length} ${name}`).join(", ")}`), open && ended.map((run) => runCard(run))),
		runs.some((run) => rank(run) < PAST || open) && marks(["m-share", "its agents and steps by state: done, then what the others do, then failed"]),
		held.length > 0 && h("div", { key: "held" }, h("h3", "Still held"), held.map(([key, each]) => resource(key, each))));
}

const PAST = 3;
/** What needs a person comes first, then what is at work, then what sleeps; what has ended is last. */
function rank(run) {
	if ((state.head.needs || []).some((need) => need.key === `run ${run.run}`)) return 0;
	if (ENDED.includes(run.state)) return PAST;
	return run.state === "running" ? 1 : 2;
}

/** For each run what its agents wait for now: how many, why, and until when. */
function waitsByRun() {
	const found = new Map();
	for (const agent of state.agents.values()) {
		if (!agent.tag || !state.runs[agent.tag]) continue;
		let run = found.get(agent.tag);
		if (!run) found.set(agent.tag, (run = { counts: {}, whys: {} }));
		run.counts[agent.state] = (run.counts[agent.state] || 0) + 1;
		if (!WAITS.includes(agent.state)) continue;
		const known = run.whys[agent.state];
		if (!known || (agent.until && (!known.until || agent.until < known.until))) run.whys[agent.state] = { why: agent.why, until: agent.until };
	}
	return found;
}

function runCard(run, waits) {
	const [done, running, failed] = [run.done + run.steps_done, run.running + run.steps_running, run.failed + run.steps_failed];
	const total = Math.max(1, done + failed + running);
	const isOver = ENDED.includes(run.state);
	const now = isOver || !waits ? {} : waits.counts;
	const kinds = ["answering", "between calls", ...WAITS, "quiet"].filter((name) => now[name]).map((name) => [look(name)[1], Math.min(now[name], running), name]);
	const rest = running - kinds.reduce((sum, [, many]) => sum + many, 0);
	const parts = [["done", done, "done"], ...kinds, [look(run.state)[1], Math.max(0, rest), "under way"], ["bad", failed, "failed"]].filter(([, many]) => many);
	const worst = run.state === "running" && WAITS.find((name) => now[name]);
	const open = opened.has(run.run);
	return h("article", { key: run.run, class: isOver ? "run over" : "run" },
		h("div.row", h("h3", link(runAt(run.run), middle(run.flow)), " ", h("small", run.run)), worst ? stateLabel(worst, null, now[worst]) : stateLabel(run.state, run.wake_at)),
		h("div.share", { role: "img", "aria-label": parts.map(([, many, name]) => `${many} ${name}`).join(", ") }, parts.map(([colour, many]) => h("i", { class: colour, "--share": many / total }))),
		waits && run.state === "running" && WAITS.filter((name) => now[name]).map((name) => whyLine(name, now[name], waits.whys[name])),
		run.why && h("p", { class: `why ${look(run.state)[1]}` }, run.why),
		dim(sums(run)),
		h("div.orders", runOrders(run)),
		run.calls.length > 0 && h("details", { open, ontoggle: (event) => fold(run.run, event.target.open) }, h("summary", "agents and steps"), open && tree(run)));
}

/** Why a part of a run waits, and until when: on the run itself. */
function whyLine(name, many, { why, until }) {
	const [glyph, colour] = look(name);
	return h("p", { key: name, class: `why ${colour}` }, `${glyph} ${plural(many, "agent")} ${name}${until ? untilText(until, now(), name) : ""}${why ? `: ${why}` : ""}`);
}

function fold(run, open) {
	if (opened.has(run) === open) return;
	opened.delete(run) || opened.add(run);
	redraw();
}

export const sums = (run) => `${run.counts} · ${number(run.tokens)} tokens · ${costOf(run.cost, run.unpriced)} · began ${moment(run.created_at, now())}`;

export function stateLabel(name, until, many) {
	const [glyph, colour] = look(name);
	return h("span", { class: `state ${colour}` }, `${glyph} ${many ? `${number(many)} ` : ""}${name}${until ? untilText(until, now()) : ""}`);
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
	const name = call.kind === "agent" && call.task ? link(agentAt(sessionOf(call), call.task), middle(call.label)) : call.label;
	const text = call.state === "failed" ? `${call.ending || "failed"}${call.says ? `: ${call.says}` : ""}` : call.state === "running" ? `for ${length(now() - call.began)}` : `${number(call.tokens)} tokens`;
	return h("li", { key: `${call.task} ${call.label}` }, h("span", { class: colour, "aria-hidden": "true" }, glyph), h("span", typeof name === "string" ? middle(name) : name), beside(`${shown} · ${text}`), h("span.orders", callOrders(run, call)));
}

/** The timeline knows the session of an agent that is under way, its outcome that of one that ended. */
function sessionOf(call) {
	if (call.session) return call.session;
	for (const agent of state.agents.values()) if (agent.agent === call.task) return agent.session;
	return "";
}

/** The command that does the same as an order about a run. */
const SAME = { resume: ["resume", ""], retry: ["resume", " --failed"], cancel: ["cancel", ""] };
const runOrder = (run, verb, label, says, more) => orderButton(verb, label, { says, path: `run/${verb}`, body: { run: run.run, only: more.only }, twin: `jackline ${SAME[verb][0]} ${run.run}${SAME[verb][1]}${more.only ? ` --only ${more.only}` : ""}`, ...more });

export function runOrders(run) {
	const order = (verb, says, loses) => run.can.includes(verb) && runOrder(run, verb, `${verb} run ${run.run}`, says, { loses });
	return [
		order("resume", `A process of its own goes on with the run. What is finished answers from the store and costs nothing: ${run.counts}.`),
		order("retry", `What failed runs again (${plural(run.failed, "agent")}, ${plural(run.steps_failed, "step")}), and nothing else.`),
		order("cancel", "The run ends for good, with its clean-up. What is finished stays to be read.", lostWith(run)),
	];
}

/** What a cancelled run leaves undone: nobody can resume it. */
function lostWith(run) {
	const open = run.calls.filter((call) => call.state === "running");
	const spent = open.reduce((sum, call) => sum + call.tokens, 0);
	const under = [run.running && plural(run.running, "agent"), run.steps_running && plural(run.steps_running, "step")].filter(Boolean).join(" and ");
	return `${under ? `the unfinished work of ${under}${spent ? `, for which ${number(spent)} tokens were used` : ""}; and ` : ""}the run itself: it cannot be resumed. ${costOf(run.cost, run.unpriced)} is spent either way.`;
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
	return verbs.map((verb) => runOrder(run, verb, `${verb} ${call.label}`, says(verb), { only: one ? call.task : call.label,
		...(verb === "cancel" && { later: "Its resume undoes it, as soon as no process runs it.", loses: `the turn that it is in${call.tokens ? `; it has used ${number(call.tokens)} tokens, ${costOf(call.cost, call.unpriced)}` : ""}.` }) }));
}

export function resource(key, { name, state: word, run, taken_at: since, trouble, can }) {
	return h("p", { key, class: trouble ? "bad" : "dim" }, `${name}: ${word} by ${run} for ${length(now() - since)}${trouble ? `, its release failed: ${trouble}` : ""} `,
		can.includes("release") && orderButton("release", `release ${name}`, { says: `${name}, and everything else that ended runs still hold, is released now by the command that its flow names.`, loses: `whatever was only in ${name}; a release cannot be taken back.`, verb: "Release it", path: "run/release", body: {}, twin: "jackline resources --retry" }));
}

export function events() {
	const all = Object.entries(state.events).sort(([, one], [, other]) => other.at - one.at);
	return panel("What happened", "logs -f", null,
		all.length ? h("ol.news", { tabindex: "0", "aria-label": "what happened, the latest first" }, all.map(([key, event]) => happened(key, event))) : dim("Nothing yet."));
}

function happened(key, event) {
	const [glyph, colour] = look(stateOf(event));
	return h("li", { key }, h("time", exact(event.at)), h("div", h("b", stateOf(event) && h("span", { class: colour, "aria-hidden": "true" }, `${glyph} `), middle(event.who)), p(event.what)));
}
