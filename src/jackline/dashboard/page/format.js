// Formats times, numbers and states. Times are in the service's zone, like those in its sentences.

import { state } from "./feed.js";

const time = (more) => new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: "UTC", ...more });
const clock = time();
const seconds = time({ second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long", timeZone: "UTC" });
const count = new Intl.NumberFormat("en");

/** How a state is drawn: a glyph and a colour; its name is always beside it. The table is that of jackline/states.py. */
export const look = (name) => state.looks[name] || ["·", "calm"];

/** What a clock in UTC shows when one in the service's zone shows this moment. */
const there = (at) => (at + (state.head.utc_offset || 0)) * 1000;

export const hour = (at) => clock.format(there(at));
export const exact = (at) => seconds.format(there(at));
export const number = (value) => count.format(Math.round(value));
export const plural = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
/** What is not known is never shown as nothing. */
export const costOf = (sum, unpriced) => unpriced ? (sum ? `at least ${dollars(sum)}` : "cost unknown") : dollars(sum);
export const dollars = (value) => `$${(value || 0).toFixed(value && value < 0.1 ? 4 : 2)}`;
export const percent = (share) => `${Math.round(share * 100)} %`;

/** A moment as the service writes it in its sentences, without its zone: one wall has one clock. */
export function moment(at, now) {
	const date = (moment) => new Date(there(moment)).toISOString().slice(0, 10);
	const shown = Math.round(at) % 60 ? exact(Math.round(at)) : hour(at);
	if (date(at) === date(now)) return shown;
	return `${shown} on ${day.format(there(at))}${date(at).slice(0, 4) === date(now).slice(0, 4) ? "" : ` ${date(at).slice(0, 4)}`}`;
}

/** Until when a wait lasts: whoever wakes for a quota within a minute of its reset waits for that reset. Nobody knows when an outage ends. */
export function until(at, now, name = "parked") {
	if (name === "upstream down" || name === "throttled") return `, tried again at ${moment(at, now)}`;
	const wall = Object.values(state.lanes).find((lane) => lane.state === "parked" && Math.abs(lane.until - at) <= 60);
	return ` until ${moment(wall ? wall.until : at, now)}`;
}

/** For planning the minute is enough. */
export const soonish = (at, now) => moment(Math.round(at / 60) * 60, now);

/** A length of time for reading: 45 s, 12 min, 3 h 5 min. */
export function length(time) {
	if (time < 1) return `${Math.max(0, time).toFixed(1)} s`;
	if (time < 90) return `${Math.round(time)} s`;
	const minutes = Math.round(time / 60);
	return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function tokens(value) {
	if (value < 10_000) return number(value);
	return value < 1e6 ? `${Math.round(value / 1000)} k` : `${(value / 1e6).toFixed(1)} M`;
}

/** A drawn id is known by its beginning; a name that somebody chose is shown whole, or without its middle. */
export const short = (id) => (/^[0-9a-f-]{21,}$/i.test(id) ? id.slice(0, 8) : id);
