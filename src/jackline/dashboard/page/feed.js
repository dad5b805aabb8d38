// Keep what the service tells: all there is when the stream begins, then what changes.

const PLAIN = ["head", "lanes", "waiting", "burn", "spend", "runs", "resources", "labels", "events"];
const nothing = () => Object.fromEntries(PLAIN.map((name) => [name, {}]));
export const state = { at: 0, epoch: 0, past: 3600, agentStates: [], looks: {}, live: false, locked: false, heard: 0, changes: 0, agents: new Map(), stretches: new Map(), ...nothing() };

const SILENCE = 25_000;
export const KEPT = "jackline-token";
let skew = 0;
let source = null;
let tell = () => {};

/** The service's time in seconds since the epoch. */
export const now = () => (Date.now() + skew) / 1000;

/** Listen, and call `heard` with the names of the parts that have changed. */
export function listen(heard) {
	tell = heard;
	open();
	// A stream that says nothing is dead, whatever the browser believes of it.
	setInterval(() => {
		if (!state.locked && (Date.now() - state.heard > SILENCE || source?.readyState === EventSource.CLOSED)) open();
	}, 3000);
}

/** Where a gateway has a token of its own, its stream needs a cookie: ask for it. */
export async function open(given) {
	state.heard = Date.now();
	const headers = given ? { "x-jackline-token": given } : { "x-jackline-control": sessionStorage.getItem(KEPT) || "" };
	// Who is not there is told by the stream.
	const answer = await fetch("/_jackline/view", { method: "POST", headers }).catch(() => null);
	state.locked = answer?.status === 401;
	if (state.locked) tell(new Set(["live"]));
	else connect();
}

function connect() {
	source?.close();
	source = new EventSource("/_jackline/feed");
	source.onmessage = (event) => take(JSON.parse(event.data));
	source.onerror = () => {
		if (state.live) {
			state.live = false;
			tell(new Set(["live"]));
		}
	};
}

function take(told) {
	const changed = new Set();
	state.heard = Date.now();
	if (told.schema) begin(told);
	if (!state.live) changed.add("live");
	state.live = true;
	state.at = told.at;
	skew = told.at * 1000 - Date.now();
	for (const name of PLAIN) if (told[name]) {
		merge(state[name], told[name]);
		changed.add(name);
	}
	if (told.agents) {
		for (const [key, row] of Object.entries(told.agents)) {
			if (row) state.agents.set(key, row);
			else {
				state.agents.delete(key);
				state.stretches.delete(key);
			}
		}
		changed.add("agents");
	}
	if (told.stretches) for (const [key, news] of Object.entries(told.stretches)) extend(key, news);
	state.changes += 1;
	tell(changed);
}

function begin(told) {
	const { epoch, past, agent_states: agentStates, looks, head } = told;
	// Another service may need another page.
	if (state.head.version && state.head.version !== head.version) location.reload();
	Object.assign(state, { epoch, past, agentStates, looks }, nothing());
	state.agents.clear();
	state.stretches.clear();
}

function merge(part, news) {
	for (const [key, value] of Object.entries(news)) {
		if (value === null) delete part[key];
		else part[key] = value;
	}
}

/** Stretches are numbered: what comes replaces everything from its first number on. */
function extend(key, [first, flat]) {
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
