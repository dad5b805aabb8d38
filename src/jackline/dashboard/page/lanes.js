// A card for each lane: its state, why and until when, what its headers allow, its slots.

import { dim, h, marks, p, panel, table } from "./dom.js";
import { now, state } from "./feed.js";
import { stateLabel } from "./flows.js";
import { orderButton } from "./orders.js";
import { length, look, number, percent, plural } from "./format.js";

const NAMES = { requests: "req/min", input: "in tok/min", output: "out tok/min", tokens: "tok/min" };
const MOST_SLOTS = 48;

export function lanes() {
	const all = Object.entries(state.lanes);
	const shown = all.map(([, lane]) => lane);
	return all.length > 0 && panel("Lanes", "status", null, h("ul.cards", all.map(card)),
		marks(["m-busy", "a call in flight"], ["m-free", "room for one"], ["m-held", "a call that is held"],
			shown.some((lane) => Object.keys(lane.limits).length) && ["m-used", "used of a limit"], shown.some((lane) => Object.values(lane.limits).some((left) => left < 0.2)) && ["m-tight", "more than four fifths of it"]));
}

/** Which upstream really answers: by the answers of the last minutes, not by what is configured. */
export function answers() {
	// They come with the latest answer first: of each model, the first one answers now.
	const rows = [...(state.head.answers || [])].sort((one, other) => (one.model < other.model ? -1 : one.model > other.model ? 1 : 0));
	const upstreams = new Set(rows.map((row) => row.upstream));
	const elsewhere = rows.some((row) => row.lane !== `${row.upstream}/${row.model}`);
	if (!rows.length || ((state.head.upstreams || []).length < 2 && upstreams.size < 2 && !elsewhere)) return null;
	const total = (model) => rows.filter((row) => row.model === model).reduce((sum, row) => sum + row.calls, 0);
	return panel("Who answers", "upstream ls", h("span.dim", "whole answers of the last 5 minutes"),
		table("upstreams that answered", ["asked for", "answered by", "", "answers", "share", "last answer"], rows.map((row, i) => [
			i && rows[i - 1].model === row.model ? "" : row.model, i && rows[i - 1].model === row.model ? row.lane : h("b", row.lane), i && rows[i - 1].model === row.model ? "before" : "the latest", number(row.calls), total(row.model) ? percent(row.calls / total(row.model)) : "none",
			`${length(Math.max(10, Math.round((now() - row.last) / 10) * 10))} ago`])));
}

function card([key, lane]) {
	const shown = !lane.paused ? lane.state : lane.in_flight ? "draining" : "paused";
	const colour = look(shown)[1];
	return h("li.card", { "--top": `var(--${colour})`, key, "data-lane": lane.name },
		h("div.row", h("h3", lane.model), stateLabel(shown)),
		dim([...new Set([lane.upstream, lane.sort])].filter(Boolean).join(" · ")),
		lane.left && p(h("b", { class: `big ${colour}` }, lane.left),
			` to ${lane.state === "parked" ? "reset" : "the next try"}, ${lane.until_text}`),
		Object.entries(lane.limits).map(([name, share]) => bar(NAMES[name] || name, 1 - share)),
		lane.limit_text && dim(`limits: ${lane.limit_text}`),
		slots(lane),
		h("p.figures", `${lane.in_flight} of ${lane.window} in flight · ${lane.waiting} held`, lane.aim > lane.window && ` · grows back to ${lane.aim}`, lane.first_byte > 0 && ` · first byte after ${lane.first_byte} s`),
		lane.paused && dim(lane.in_flight ? `it drains: ${lane.in_flight} still in flight` : "drained: nothing is in flight"),
		lane.why && h("p", { class: colour }, lane.why),
		lane.reported && dim(lane.reported),
		h("div.orders", switches(lane), useButton(lane)));
}

function bar(name, used) {
	const share = Math.min(1, Math.max(0, used));
	return h("div", { class: "limit" }, h("span", name),
		h("span", { class: `bar ${share > 0.8 ? "tight" : ""}`, "--share": share, role: "img", "aria-label": `${percent(share)} of ${name} used` }),
		h("span.figure", percent(share)));
}

/** In flight, free in the window, held: throttling looks like control. */
function slots(lane) {
	const total = Math.max(lane.window, lane.in_flight) + lane.waiting;
	if (total > MOST_SLOTS) return bar("slots", lane.in_flight / Math.max(1, lane.window));
	const places = (many, kind) => Array(Math.max(0, many)).fill(h("i", { class: kind }));
	return total > 0 && h("div.slots", { "aria-hidden": "true" }, places(lane.in_flight, "busy"), places(lane.window - lane.in_flight, "free"), places(lane.waiting, "held"));
}

/** Pausing drains: to drain is to pause a lane that has calls in flight, and to see its last one end. */
function switches(lane) {
	const { name } = lane;
	const body = { lane: name };
	const order = (verb, back, says) => orderButton(verb, `${verb} ${name}`, { says, path: verb, body, undo: { path: back, body }, twin: `jackline upstream ${verb} ${name}` });
	const rest = "others wait, or go to another upstream where one is written.";
	const flying = `${plural(lane.in_flight, "call")} in flight`;
	if (lane.paused) return order("resume", "pause", `${name} takes calls again; ${lane.waiting} wait for it.`);
	return [
		order("pause", "resume", `Nothing more is sent on ${name}. The ${flying} finish (it drains); ${rest}`),
		lane.in_flight > 0 && order("drain", "resume", `The ${flying} on ${name} finish, and nothing more is sent on it: its card says when the last has ended. New ones and ${rest}`),
	];
}

function useButton({ model, upstream }) {
	const others = (state.head.upstreams || []).filter((each) => each !== upstream);
	const order = (state.head.orders || []).find((each) => each.model === model);
	if (order) {
		const body = { upstream: order.upstream };
		return orderButton("back", `end the order about ${model}`, { says: `Calls for ${model} go by the written order of upstreams again.`, verb: "Go back", path: "back", body, twin: `jackline upstream back ${order.upstream}` });
	}
	return others.length > 0 && orderButton("use…", `use another upstream for ${model}`, { says: `Calls for ${model}, those that wait too, go to the upstream you choose, until you go back.`, choosing: "upstream", choices: others, verb: "Use it", path: "use",
		body: (chosen) => ({ upstream: chosen, model }), undo: (chosen) => ({ path: "back", body: { upstream: chosen } }), twin: "jackline upstream use" });
}
