// A card for each lane: its state, why and until when, what its headers allow, its slots.

import { dim, h, p, panel } from "./dom.js";
import { now, state } from "./feed.js";
import { orderButton } from "./orders.js";
import { countdown, look, moment, percent } from "./words.js";

const NAMES = { requests: "req/min", input: "in tok/min", output: "out tok/min", tokens: "tok/min" };
const MOST_SLOTS = 48;

export function lanes() {
	const all = Object.entries(state.lanes);
	return panel("Lanes", "status", null,
		all.length ? h("ul.cards", all.map(card)) : dim("No lane is open yet: the first call through the gateway opens one."));
}

function card([key, lane]) {
	const word = lane.paused ? "paused" : lane.state;
	const [glyph, colour] = look(word);
	const left = lane.until == null ? null : lane.until - now();
	return h("li.card", { "--top": `var(--${colour})`, key, "data-lane": lane.name },
		h("div.row", h("h3", lane.model), h("span", { class: `state ${colour}` }, `${glyph} ${word}`)),
		dim([lane.upstream, lane.sort].filter(Boolean).join(" · ")),
		left != null && left > 0 && p(h("b", { class: `big ${colour}` }, countdown(left)),
			` to ${lane.state === "parked" ? "reset" : "the next try"}, ${moment(lane.until, now())}`),
		Object.entries(lane.limits).map(([name, share]) => bar(NAMES[name] || name, 1 - share)),
		slots(lane),
		h("p.figures", `${lane.in_flight} of ${lane.window} in flight · ${lane.waiting} held`, lane.aim > lane.window && ` · grows back to ${lane.aim}`, lane.first_byte > 0 && ` · first byte after ${lane.first_byte} s`),
		lane.paused && lane.in_flight > 0 && dim(`it drains: ${lane.in_flight} still in flight`),
		lane.why && h("p", { class: colour }, lane.why),
		lane.reported && dim(lane.reported),
		h("div.orders", pauseButton(lane), useButton(lane)));
}

export function bar(name, used, figure, key = name) {
	const share = Math.min(1, Math.max(0, used));
	const colour = share > 0.95 ? "bad" : share > 0.8 ? "slow" : "go";
	return h("div", { key, class: figure ? "limit wide" : "limit" }, h("span", name),
		h(`span.bar ${colour}`, { "--share": share, role: "img", "aria-label": `${percent(share)} of ${name} used` }),
		h("span.figure", figure || percent(share)));
}

/** In flight, free in the window, held: throttling looks like control. */
function slots(lane) {
	const total = Math.max(lane.window, lane.in_flight) + lane.waiting;
	if (!total || total > MOST_SLOTS) return total ? bar("slots", lane.in_flight / Math.max(1, lane.window)) : null;
	const kinds = [...Array(lane.in_flight).fill("busy"), ...Array(Math.max(0, lane.window - lane.in_flight)).fill("free"), ...Array(lane.waiting).fill("held")];
	return h("div.slots", { "aria-hidden": "true" }, kinds.map((kind) => h("i", { class: kind })));
}

function pauseButton(lane) {
	const [verb, word, back] = lane.paused ? ["resume", "Resume", "pause"] : ["pause", "Pause", "resume"];
	const body = { lane: lane.name };
	const says = lane.paused ? `${lane.name} takes calls again; ${lane.waiting} wait for it.`
		: `Nothing more is sent on ${lane.name}. The ${lane.in_flight} calls in flight finish (it drains); new ones wait, or go to another upstream where one is written.`;
	return orderButton(verb, () => ({ title: `${word} ${lane.name}`, says, verb: `${word} it`, path: verb, body, undo: { path: back, body }, twin: `jackline upstream ${verb} ${lane.name}` }), `${verb} ${lane.name}`);
}

function useButton(lane) {
	const others = (state.head.upstreams || []).filter((each) => each !== lane.upstream);
	const given = (state.head.orders || []).find((order) => order.model === lane.model);
	if (given) {
		const says = `Calls for ${lane.model} go by the written order of upstreams again.`;
		return orderButton("back", () => ({ title: "Back to the written order", says, verb: "Go back", path: "back", body: { upstream: given.upstream }, twin: `jackline upstream back ${given.upstream}` }), `end the order about ${lane.model}`);
	}
	if (!others.length) return null;
	const says = `Calls for ${lane.model}, those that wait too, go to the upstream you choose, until you go back.`;
	return orderButton("use…", () => ({ title: `Another upstream for ${lane.model}`, says, choosing: "upstream", choices: others, verb: "Use it", path: "use",
		body: (upstream) => ({ upstream, model: lane.model }), undo: (upstream) => ({ path: "back", body: { upstream } }), twin: "jackline upstream use" }), `use another upstream for ${lane.model}`);
}
