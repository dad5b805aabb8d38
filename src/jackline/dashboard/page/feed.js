// The state of the page: everything when the stream begins, then what changes.

const PLAIN = ["head", "lanes", "waiting", "burn", "spend", "runs", "resources", "labels", "events"];
const nothing = () => Object.fromEntries(PLAIN.map((name) => [name, {}]));
export const state = { at: 0, epoch: 0, past: 3600, agentStates: [], looks: {}, meanings: {}, drawn: new Set(), live: false, locked: false, updatedAt: 0, changes: 0, agents: new Map(), stretches: new Map(), ...nothing() };

const SILENCE = 25_000;
export const TOKEN_KEY = "jackline-token";
let skew = 0;
let source = null;
let notify = () => {};

/** The service's time in seconds since the epoch. */
export const now = () => (Date.now() + skew) / 1000;

/** Open the stream, and call `onChange` with the names of the parts that have changed. */
export function listen(onChange) {
	notify = onChange;
	open();
	// A stream that sends nothing is dead, whatever the browser reports.
	setInterval(() => {
		if (!state.locked && (Date.now() - state.updatedAt > SILENCE || source?.readyState === EventSource.CLOSED)) open();
	}, 3000);
}

/** Where a gateway has a token of its own, its stream needs a cookie: request it. */
export async function open(token) {
	state.updatedAt = Date.now();
	const headers = token ? { "x-jackline-token": token } : { "x-jackline-control": sessionStorage.getItem(TOKEN_KEY) || "" };
	// The stream reports a service that is not there.
	const answer = await fetch("/_jackline/view", { method: "POST", headers }).catch(() => null);
	state.locked = answer?.status === 401;
	if (state.locked) notify(new Set(["live"]));
	else connect();
}

function connect() {
	source?.close();
	source = new EventSource("/_jackline/feed");
	source.onmessage = (event) => apply(JSON.parse(event.data));
	source.onerror = () => {
		if (state.live) {
			state.live = false;
			notify(new Set(["live"]));
		}
	};
}

function apply(message) {
	const changed = new Set();
	state.updatedAt = Date.now();
	if (message.schema) begin(message);
	if (!state.live) changed.add("live");
	state.live = true;
	state.at = message.at;
	skew = message.at * 1000 - Date.now();
	for (const name of PLAIN) if (message[name]) {
		merge(state[name], message[name]);
		changed.add(name);
	}
	if (message.agents) {
		for (const [key, row] of Object.entries(message.agents)) {
			if (row) {
				state.agents.set(key, row);
				for (const [, , number] of row.open) state.drawn.add(state.agentStates[number]);
			} else {
				state.agents.delete(key);
				state.stretches.delete(key);
			}
		}
		changed.add("agents");
	}
	if (message.stretches) for (const [key, news] of Object.entries(message.stretches)) extend(key, news);
	state.changes += 1;
	notify(changed);
}

function begin(message) {
	const { epoch, past, agent_states: agentStates, looks, meanings, head } = message;
	// Another service may need another page.
	if (state.head.version && state.head.version !== head.version) location.reload();
	Object.assign(state, { epoch, past, agentStates, looks, meanings }, nothing());
	state.drawn.clear();
	state.agents.clear();
	state.stretches.clear();
}

function merge(part, news) {
	for (const [key, value] of Object.entries(news)) {
		if (value === null) delete part[key];
		else part[key] = value;
	}
}

/** Stretches are numbered: new ones replace everything from their first number on. */
function extend(key, [first, flat]) {
	for (let i = 2; i < flat.length; i += 3) state.drawn.add(state.agentStates[flat[i]]);
	const known = state.stretches.get(key);
	if (!known || first < known.first || first > known.first + known.flat.length / 3) {
		state.stretches.set(key, { first, flat });
		return;
	}
	known.flat.length = (first - known.first) * 3;
	for (const value of flat) known.flat.push(value);
	const past = (state.at - state.epoch - state.past) * 10;
	let old = 0;
	while (old < known.flat.length && known.flat[old + 1] < past) old += 3;
	if (old) {
		known.flat.splice(0, old);
		known.first += old / 3;
	}
}
