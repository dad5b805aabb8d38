// The one time axis of the page: fleet, events and burn have the same seconds at the same place.

import { now, state } from "./feed.js";

export const SPANS = [120, 300, 900, 1800, 3600];
const STEPS = [60, 120, 300, 600, 900, 1800];
const NAMES_KEY = "jackline-names";
const LEAST_NAMES = 56;
export const axis = { span: 3600, ahead: 1200, names: 150, width: 0, cursor: null };
let wanted = Number(localStorage.getItem(NAMES_KEY)) || 0;

/** How far the axis reaches: what has happened, or the chosen span; and up to the next reset. */
export function fit(chosen) {
	const at = now();
	let oldest = at;
	for (const each of state.stretches.values()) if (each.flat.length) oldest = Math.min(oldest, state.epoch + each.flat[0] / 10);
	axis.span = Number(chosen) || SPANS.find((each) => at - oldest <= each) || SPANS.at(-1);
	const resets = Object.values(state.lanes).map((lane) => lane.until - at).filter((left) => left < Math.max(axis.span, 1800));
	axis.ahead = Math.max(axis.span / 3, ...resets.map((left) => left * 1.1));
	if (!Number(chosen)) axis.span = Math.max(axis.span, axis.ahead / 2);
}

/** The column of names: as wide as the user has made it, and never most of the page. */
export function measure(width) {
	axis.width = width;
	axis.names = Math.round(Math.min(Math.max(LEAST_NAMES, wanted || (width < 560 ? 104 : width < 760 ? 168 : 200)), width * 0.6));
	document.documentElement.style.setProperty("--names", `${axis.names}px`);
}

export function widen(to) {
	wanted = Math.round(Math.max(LEAST_NAMES, to));
	localStorage.setItem(NAMES_KEY, String(wanted));
	measure(axis.width);
}

/** Where moments are, in pixels from the left edge; and the moments at which a line is drawn. */
export function scale() {
	const at = now();
	const from = at - axis.span;
	const until = at + axis.ahead;
	const perSecond = (axis.width - axis.names) / (until - from);
	const x = (time) => axis.names + (time - from) * perSecond;
	const step = STEPS.find((each) => each * perSecond > 64) || 3600;
	const ticks = [];
	for (let time = Math.ceil(from / step) * step; time < until; time += step) ticks.push(time);
	return { at, from, until, perSecond, x, time: (place) => from + (place - axis.names) / perSecond, ticks, width: axis.width };
}

/** The resets ahead, each moment once. */
export function resets() {
	const at = now();
	const walls = Object.values(state.lanes).filter((lane) => lane.state === "parked" && lane.until > at).map((lane) => lane.until);
	return [...new Set(walls)].sort((one, other) => one - other);
}
