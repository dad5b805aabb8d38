// The calls that wait, in the order in which they would go, each with the reason for its place.

import { agentAt, beside, h, link, middle, panel, table, firstOf } from "./dom.js";
import { now, state } from "./feed.js";
import { length, number, short, tokens } from "./format.js";

const HEADS = ["turn", "agent", "waits for", "class", "cached", "costs", "lane and why"];

export function waiting() {
	const calls = Object.values(state.waiting).sort((one, other) => one.order - other.order);
	const all = state.head.calls_waiting;
	const [shown, button] = firstOf("waiting", calls);
	return calls.length > 0 && panel("Waiting", "status", beside(calls.length < all ? `the first ${calls.length} of ${number(all)}` : "in the order in which they go"), table("calls that wait", HEADS, shown.map(row)), button);
}

function row(call) {
	const name = call.label || state.labels[call.agent] || (call.agent ? short(call.agent) : call.session ? `session ${short(call.session)}` : "no session");
	const left = call.cached_until - now();
	return [call.place || "", call.session || call.agent ? link(agentAt(call.session, call.agent), middle(name)) : middle(name), length(now() - call.since), call.rank,
		call.cached ? `${tokens(call.cached)}, ${left > 0 ? `lapses in ${length(left)}` : "lapsed"}` : "", call.cost == null ? "" : tokens(call.cost), [call.lane, h("p.dim", call.why)]];
}
