// How many agents of a group were in each state, over time: many agents as one band.

import { axis } from "./axis.js";
import { state } from "./feed.js";
import { look } from "./format.js";

const PIXELS = 3;
const LASTS = 1000;
const AT_WORK = ["answering", "between calls", "queued", "throttled", "parked", "upstream down", "failed", "quiet"];
const bands = new Map();

/** The band of these agents as a picture, one column for each bin of the axis: drawn again once a second at most. */
export function band(key, agents, height, { from, at, perSecond }, colours, changes) {
	const bin = PIXELS / perSecond;
	const first = Math.floor(from / bin);
	const known = bands.get(key);
	const same = known && known.height === height && Math.abs(known.bin - bin) < 1e-9 && known.colours === colours.made;
	if (same && known.agents === agents.length && (known.changes === changes && known.first === first || performance.now() - known.made < LASTS)) return known;
	const counts = counted(agents, bin, first, Math.ceil(at / bin) - first, at);
	const picture = known?.picture || document.createElement("canvas");
	paint(picture, counts, agents.length, height, colours);
	const made = { picture, bin, first, height, changes, agents: agents.length, colours: colours.made, made: performance.now(), counts };
	bands.set(key, made);
	if (bands.size > 400) bands.delete(bands.keys().next().value);
	return made;
}

/** For each state how many agents had it in the middle of each bin. */
function counted(agents, bin, first, bins, at) {
	const found = AT_WORK.map(() => new Int32Array(bins + 1));
	const numbers = state.agentStates.map((name) => AT_WORK.indexOf(name));
	const add = (begins, ends, number) => {
		const which = numbers[number];
		if (which < 0) return;
		const place = (tenths) => Math.min(bins, Math.max(0, Math.ceil((state.epoch + tenths / 10) / bin - first - 0.5)));
		found[which][place(begins)] += 1;
		found[which][ends == null ? bins : place(ends)] -= 1;
	};
	for (const { key, agent } of agents) {
		const flat = state.stretches.get(key)?.flat || [];
		for (let i = 0; i < flat.length; i += 3) add(flat[i], flat[i + 1], flat[i + 2]);
		for (const each of agent.open) add(...each);
	}
	for (const one of found) for (let i = 1; i <= bins; i += 1) one[i] += one[i - 1];
	return { bins, found };
}

function paint(picture, { bins, found }, most, height, colours) {
	picture.width = Math.max(1, bins);
	picture.height = height;
	const pen = picture.getContext("2d");
	for (let i = 0; i < bins; i += 1) {
		let sum = 0;
		let below = 0;
		for (let which = 0; which < found.length; which += 1) {
			const many = found[which][i];
			if (!many) continue;
			sum += many;
			// Also one of a thousand can be seen.
			const top = Math.min(height, Math.max(below + 1, Math.round((sum / Math.max(1, most)) * height)));
			pen.fillStyle = colours[AT_WORK[which]];
			pen.fillRect(i, height - top, 1, top - below);
			below = top;
		}
	}
}

/** Draw it where it belongs, up to now. */
export function drawBand(pen, made, y, { x, at }) {
	const left = Math.max(axis.names, x(made.first * made.bin));
	const wide = made.picture.width * PIXELS;
	pen.save();
	pen.beginPath();
	pen.rect(left, y, x(at) - left, made.height);
	pen.clip();
	pen.imageSmoothingEnabled = false;
	pen.drawImage(made.picture, x(made.first * made.bin), y, wide, made.height);
	pen.restore();
}

/** Present counts, each with its glyph: what the right end of a band says. */
export const glyphs = (counts) => AT_WORK.filter((name) => counts[name]).map((name) => [name, look(name)[0], counts[name]]);
