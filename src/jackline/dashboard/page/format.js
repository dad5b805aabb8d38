// Formats times, numbers and states. Times are in the service's zone, like those in its sentences.

import { state } from "./feed.js";

const time = (more) => new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: "UTC", ...more });
const clock = time();
const seconds = time({ second: "2-digit" });
const day = new Intl.DateTimeFormat([], { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });
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

/** A moment: the hour today, else the day too. */
export function moment(at, now) {
	const date = (moment) => new Date(there(moment)).toISOString().slice(0, 10);
	return date(at) === date(now) ? hour(at) : `${day.format(there(at))} ${hour(at)}`;
}

/** What is left, as a clock that runs down: 13:34, 2:05:00. */
export function countdown(left) {
	const total = Math.max(0, Math.round(left));
	const two = (value) => String(value).padStart(2, "0");
	const hours = Math.floor(total / 3600);
	const rest = `${two(Math.floor((total % 3600) / 60))}:${two(total % 60)}`;
	return hours ? `${hours}:${rest}` : rest;
}

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

/** An id short enough for a line. */
export const short = (id) => (id.length > 20 ? id.slice(0, 8) : id);
