// The fleet's timeline, past and future. Only rows in sight are drawn: 5,000 agents cost what 50 do.

import { SPANS, axis, fit, measure, resets, scale, widen } from "./axis.js";
import { band, drawBand, glyphs } from "./density.js";
import { agentAt, beside, fill, h, inFrame, marks, middle, panel, runAt } from "./dom.js";
import { now, state } from "./feed.js";
import { hour, length, look, moment, number, plural, short, until as untilText } from "./format.js";

const ROW = 16;
const GROUP = 22;
const BAND = 34;
const EVERYONE = 84;
const TOP = 18;
// The line of events, and the hours.
const EVENTS = 18;
const FOOT = EVENTS + 20;
const FOLD_ABOVE = 150;
const THIN = ["quiet", "queued", "finished"];
const OVER = "finished";
const APART = 9;

const view = { rows: [], height: 0, shown: 0, colours: { made: 0 }, toggled: new Set(), counts: {}, made: "", changes: 0, current: "" };
const order = new Intl.Collator([], { numeric: true });
let parts = null;
let redraw = () => {};
let pointed = () => {};
export const onPointed = (work) => { pointed = work; };

export function fleetPanel(filter, setFilter, draw) {
	redraw = draw;
	const { counts } = view;
	const legend = state.agentStates.filter((kind) => counts[kind] || state.drawn.has(kind) || filter.state === kind).map((kind) => {
		const [glyph, colour] = look(kind);
		const on = filter.state === kind;
		return h("button", { key: kind, class: `key ${colour}`, title: `${state.meanings[kind] || ""}; press to show only these`, "aria-pressed": String(on), onclick: () => setFilter({ state: on ? "" : kind }) },
			h("i", { "aria-hidden": "true" }, glyph), ` ${kind} ${number(counts[kind] || 0)}`);
	});
	const banded = view.rows.some((row) => row.agents && row.folded);
	return panel("Fleet", "status --watch", [h("div.legend", legend), beside(`last ${length(axis.span)} · next ${length(axis.ahead)}`)],
		h("div.filters",
			h("label", "find ", h("input", { type: "search", value: filter.q, placeholder: "agent, session, run, model", "aria-keyshortcuts": "/", oninput: (event) => setFilter({ q: event.target.value }) })),
			h("label", "span ", h("select", { value: filter.span, onchange: (event) => setFilter({ span: event.target.value }) },
				["", ...SPANS].map((value) => h("option", { value }, value ? length(value) : "fits")))),
			beside(view.shown === state.agents.size ? plural(view.shown, "agent") : `${number(view.shown)} of ${plural(state.agents.size, "agent")}`)),
		h("div.timeline", { own: true }),
		marks(["m-now", "now"], ["m-reset", "reset of a quota"], ["m-wait", "waits until there"], ["m-next", "expected to go on"],
			banded && ["m-band", "how many agents of a group are in each state"], ["m-event", "something happened, with its state"]),
		h("p.dim tip", { "aria-hidden": "true", own: true }));
}

export function attach(section) {
	const box = section.querySelector(".timeline");
	if (!box || parts?.box === box) return;
	fill(box, [h("canvas", { "aria-hidden": "true" }), h("div.scroller", { role: "group", "aria-label": "Agents, one in a row; j and k go from one to the next" }, h("ul.names", { own: true }), h("div", { own: true })),
		h("div.edge", { role: "separator", tabindex: "0", "aria-orientation": "vertical", "aria-label": "width of the names", title: "drag to widen the names" })]);
	const [canvas, scroller, edge] = box.children;
	const [names, size] = scroller.children;
	parts = { box, canvas, scroller, size, names, edge, tip: section.querySelector(".tip"), pen: canvas.getContext("2d") };
	scroller.onscroll = schedule;
	scroller.onclick = (event) => { const row = rowAt(event); if (row && !event.target.closest("a,button")) choose(row); };
	box.onmousemove = (event) => {
		parts.tip.textContent = eventAt(event) || tip(rowAt(event));
		point(event.clientX - box.getBoundingClientRect().left);
	};
	box.onmouseleave = () => { parts.tip.textContent = ""; point(null); };
	edge.onpointerdown = (event) => { event.preventDefault(); edge.focus(); edge.setPointerCapture(event.pointerId); };
	edge.onpointermove = (event) => { if (edge.hasPointerCapture(event.pointerId)) resize(event.clientX - box.getBoundingClientRect().left); };
	edge.onkeydown = (event) => {
		const step = { ArrowLeft: -16, ArrowRight: 16 }[event.key];
		if (step) { event.preventDefault(); resize(axis.names + step); }
	};
	new ResizeObserver(schedule).observe(box);
	matchMedia("(prefers-color-scheme: dark)").onchange = recolour;
	recolour();
}

function resize(to) {
	widen(to);
	schedule();
	pointed();
}

/** The moment under the pointer, on every part of the axis. */
export function point(place) {
	axis.cursor = place == null || place < axis.names ? null : scale().time(place);
	schedule();
	pointed();
}

export function detach() { parts = null; }

export const outdated = () => { view.made = ""; view.changes += 1; };
export const counted = () => view.counts;

/** The rows, computed again when agents or the filter change: who is at work first, who has finished folded. */
export function refresh(filter) {
	const wanted = JSON.stringify(filter);
	if (view.made === wanted) return;
	view.made = wanted;
	view.counts = {};
	const query = filter.q.trim().toLowerCase();
	const groups = new Map();
	const everyone = [];
	for (const [key, agent] of state.agents) {
		tally(view.counts, agent.state);
		if (filter.state && agent.state !== filter.state) continue;
		const name = label(agent);
		if (query && !`${name} ${key} ${agent.tag} ${agent.model} ${agent.lane} ${agent.state} ${groupLabel(agent)}`.toLowerCase().includes(query)) continue;
		const id = agent.tag || agent.session;
		let group = groups.get(id);
		if (!group) groups.set(id, (group = { id, label: groupLabel(agent), run: state.runs[agent.tag] ? agent.tag : "", agents: [], counts: {} }));
		const each = { key, agent, name };
		everyone.push(each);
		group.agents.push(each);
		tally(group.counts, agent.state);
	}
	view.shown = everyone.length;
	view.rows = [];
	view.height = 0;
	if (view.shown > FOLD_ABOVE) push({ key: "everyone", label: `all ${number(view.shown)} agents`, agents: everyone, counts: tallied(everyone), folded: true, height: EVERYONE });
	const sorted = [...groups.values()].sort((one, other) => !one.run - !other.run || order.compare(one.label, other.label));
	const [present, past] = split(sorted, (group) => group.agents.every(isOver));
	for (const group of present) addGroup(group, view.shown > FOLD_ABOVE);
	// Sessions of one agent that have finished are one group: nobody looks for them by themselves.
	const [, alone] = split(past, (group) => group.agents.length === 1 && !group.run);
	if (alone.length > 1 && view.shown > alone.length) past.push({ id: "alone", label: `${number(alone.length)} finished sessions`, run: "", alone: true, agents: alone.map((group) => ({ ...group.agents[0], name: group.label })), counts: { [OVER]: alone.length } });
	for (const group of past) if (!alone.includes(group) || alone.length < 2 || view.shown === alone.length) addGroup(group, true);
	fit(filter.span);
	schedule();
}

const isOver = ({ agent }) => agent.state === OVER;
const split = (all, second) => [all.filter((each) => !second(each)), all.filter(second)];
const tally = (counts, word) => { counts[word] = (counts[word] || 0) + 1; };
const tallied = (agents) => { const counts = {}; for (const { agent } of agents) tally(counts, agent.state); return counts; };
const isFolded = (id, usually) => usually !== view.toggled.has(id);

function addGroup(group, folds) {
	const single = group.agents.length === 1;
	group.folded = !single && isFolded(group.id, folds);
	if (!single) push({ ...group, key: `g ${group.id}`, height: group.folded ? BAND : GROUP });
	if (group.folded) return;
	if (group.agents.length < 200) group.agents.sort((one, other) => order.compare(one.name, other.name));
	const [rest, over] = split(group.agents, isOver);
	const add = (each) => push({ ...each, name: !single ? each.name : group.run ? `${each.name} · ${group.label}` : group.label, height: ROW });
	rest.forEach(add);
	if (over.length < 2 || !rest.length) { over.forEach(add); return; }
	const id = `over ${group.id}`;
	const folded = isFolded(id, true);
	push({ id, key: id, label: `${number(over.length)} finished`, agents: over, counts: { [OVER]: over.length }, over: true, folded, height: ROW });
	if (!folded) over.forEach(add);
}

function push(row) {
	row.y = view.height;
	view.height += row.height;
	view.rows.push(row);
}

const label = (agent) => state.labels[agent.agent] || (agent.agent ? short(agent.agent) : "main");

function groupLabel(agent) {
	const run = state.runs[agent.tag];
	if (run) return `${run.flow} ${run.run}`;
	return agent.tag ? `tag ${agent.tag}` : `session ${short(agent.session)}`;
}

export const schedule = inFrame(() => parts && frame());

/** One frame: everything that is touched here is in sight. */
function frame() {
	const begins = performance.now();
	const { box, canvas, scroller, size, edge, pen } = parts;
	const width = box.clientWidth;
	measure(width);
	edge.setAttribute("aria-valuenow", String(axis.names));
	const most = Math.max(240, Math.min(620, Math.round(innerHeight * 0.6)));
	const tall = Math.max(3 * ROW, Math.min(view.height, most));
	const whole = tall + TOP + FOOT;
	box.style.height = `${whole}px`;
	size.style.height = `${view.height}px`;
	const sharp = devicePixelRatio || 1;
	const wanted = [width, whole].map((each) => Math.round(each * sharp));
	if (canvas.width !== wanted[0] || canvas.height !== wanted[1]) [canvas.width, canvas.height] = wanted;
	pen.setTransform(sharp, 0, 0, sharp, 0, 0);
	pen.clearRect(0, 0, width, whole);
	const top = scroller.scrollTop;
	const seen = inSight(top, top + tall);
	const places = scale();
	ground(places, tall);
	pen.save();
	pen.beginPath();
	pen.rect(0, TOP, width, tall);
	pen.clip();
	for (const row of seen) row.agents ? drawGroup(row, top, places) : drawAgent(row, top, places);
	pen.restore();
	drawEvents(places, TOP + tall);
	lines(places, tall);
	name(seen);
	// For whoever measures.
	performance.clearMeasures();
	performance.measure("fleet-frame", { start: begins, detail: { rows: seen.length, agents: state.agents.size } });
}

const inSight = (from, until) => view.rows.filter((row) => row.y + row.height > from && row.y < until);

/** A filled box in the colour of this name. */
function rect(name, ...place) {
	parts.pen.fillStyle = view.colours[name];
	parts.pen.fillRect(...place);
}

function write(name, words, align, ...place) {
	parts.pen.fillStyle = view.colours[name];
	parts.pen.textAlign = align;
	parts.pen.fillText(words, ...place);
}

function ground({ x, at, ticks, width }, tall) {
	rect("ahead", x(at), TOP, width - x(at), tall + EVENTS);
	parts.pen.font = view.colours.font;
	for (const time of ticks) {
		rect("line", Math.round(x(time)), TOP, 1, tall + EVENTS);
		if (x(time) > axis.names + 16 && x(time) < width - 16) write("dim", hour(time), "center", x(time), tall + TOP + EVENTS + 14);
	}
}

function drawAgent(row, top, { x, from, at, until }) {
	const { pen } = parts;
	const y = row.y - top + TOP + 2;
	const bar = (begins, until, number) => {
		const kind = state.agentStates[number];
		const ends = until == null ? at : state.epoch + until / 10;
		if (ends <= from) return;
		const thin = THIN.includes(kind);
		const left = x(Math.max(state.epoch + begins / 10, from));
		rect(kind, left, thin ? y + 4 : y, Math.max(1, x(ends) - left - 0.5), thin ? 4 : ROW - 4);
		// Not by colour alone: what failed has a line through it.
		if (kind === "failed") rect("ground", left, y + 5, Math.max(1, x(ends) - left), 1.5);
	};
	const flat = state.stretches.get(row.key)?.flat || [];
	for (let i = 0; i < flat.length; i += 3) bar(flat[i], flat[i + 1], flat[i + 2]);
	for (const each of row.agent.open) bar(...each);
	if (row.agent.until > at) {
		const ends = x(Math.min(row.agent.until, until));
		pen.strokeStyle = view.colours[row.agent.state];
		pen.setLineDash([2, 3]);
		pen.beginPath();
		pen.moveTo(x(at), y + 6);
		pen.lineTo(ends, y + 6);
		pen.stroke();
		pen.setLineDash([]);
		if (row.agent.until < until) {
			pen.globalAlpha = 0.3;
			rect("answering", ends, y, x(until) - ends, ROW - 4);
			pen.globalAlpha = 1;
		}
	}
}

/** A folded group is a band: how many of its agents were in each state, over time. */
function drawGroup(row, top, places) {
	if (!row.folded || row.over) return;
	const y = row.y - top + TOP + 3;
	drawBand(parts.pen, band(row.key, row.agents, row.height - 6, places, view.colours, view.changes), y, places);
	let left = places.x(places.at) + 6;
	for (const [kind, glyph, many] of glyphs(row.counts)) {
		const words = `${glyph} ${number(many)}`;
		const wide = parts.pen.measureText(words).width;
		if (left + wide > places.width) break;
		write(`${kind} ink`, words, "left", left, y + (row.height - 6) / 2 + 4);
		left += wide + 8;
	}
}

const countsText = (counts) => state.agentStates.filter((kind) => counts[kind]).map((kind) => `${number(counts[kind])} ${kind}`).join(", ");

/** An event's first word, where it is a state. */
export const stateOf = (event) => { const word = event.what.split(/[:,.]/)[0]; return state.looks[word] ? word : ""; };

/** What happened, at the same time as what is drawn above it; one of those that are closer than a finger. */
function drawEvents({ x, from, at }, y) {
	write("dim", "events", "left", 0, y + 12);
	let last = -APART;
	for (const event of Object.values(state.events).sort((one, other) => one.at - other.at)) {
		const place = x(event.at);
		if (event.at < from || event.at > at || place - last < APART) continue;
		const word = stateOf(event);
		write(word ? `${word} ink` : "dim", word ? look(word)[0] : "◆", "center", last = place, y + 13);
	}
}

function lines({ x, at, width }, tall) {
	const mark = (time, colour, words, align, place) => {
		rect(colour, Math.round(x(time)), TOP - 4, 1.5, tall + EVENTS + 4);
		write(colour, words, align, place, 12);
	};
	mark(at, "ink", "now", "right", x(at) - 5);
	for (const reset of resets()) {
		const room = width - x(reset);
		const words = `${width - x(at) > 115 ? "reset " : ""}${moment(reset, at)}`;
		if (room > 96) mark(reset, "parked ink", words, "left", x(reset) + 5);
		else mark(reset, "parked ink", room > 0 ? words : `${words} →`, "right", width - 4);
	}
	const { cursor } = axis;
	if (cursor == null || x(cursor) < axis.names) return;
	rect("dim", Math.round(x(cursor)), TOP, 1, tall + EVENTS);
	write("dim", moment(Math.round(cursor), at), "center", Math.min(Math.max(x(cursor), axis.names + 24), width - 24), tall + TOP + EVENTS + 14);
}

/** Names in sight, and the one that has the focus, are real links. One of them is a stop of the tabulator: j and k go on from there. */
function name(seen) {
	const held = parts.names.querySelector(":focus")?.closest("li").jlKey;
	if (held) view.current = held;
	const kept = held ? view.rows.filter((row) => row.key === held && !seen.includes(row)) : [];
	const stop = seen.some((row) => row.key === view.current) || kept.length ? view.current : seen.find(isStop)?.key;
	fill(parts.names, [...seen, ...kept].map((row) => {
		const props = { key: row.key, "--y": `${row.y}px`, "--h": `${row.height}px`, class: row.over ? "over" : row.agents ? "group" : "" };
		const tabindex = row.key === stop ? "0" : "-1";
		if (row.key === "everyone") return h("li", props, h("span.label-begin", { title: describe(row) }, row.label));
		if (row.agents) {
			return h("li", props, h("button", { tabindex, "aria-expanded": String(!row.folded), "aria-label": describe(row), onclick: () => choose(row) },
				h("span", { "aria-hidden": "true" }, row.folded ? "▸ " : "▾ "), middle(row.label)), row.run && h("a", { tabindex, href: runAt(row.run), "aria-label": `run ${row.run}` }, "↗"));
		}
		const { agent } = row;
		const [glyph, colour] = look(agent.state);
		return h("li", props, h("a", { tabindex, href: agentAt(agent.session, agent.agent), "aria-label": describe(row) },
			h("span", { class: `glyph ${colour}`, "aria-hidden": "true" }, glyph), middle(row.name)));
	}));
}

const isStop = (row) => row.key !== "everyone";

/** Go to the next row, or to the one before: whatever the number of rows, that is two keys. */
export function step(by) {
	const rows = view.rows.filter(isStop);
	if (!parts || !rows.length) return;
	const at = rows.findIndex((row) => row.key === view.current);
	const row = rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by))];
	const { scroller } = parts;
	view.current = row.key;
	document.activeElement?.blur();
	if (row.y < scroller.scrollTop) scroller.scrollTop = row.y;
	else if (row.y + row.height > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = row.y + row.height - scroller.clientHeight;
	frame();
	parts.names.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
	scroller.scrollIntoView({ block: "nearest" });
}

function choose(row) {
	if (!row.agents) {
		location.hash = agentAt(row.agent.session, row.agent.agent);
		return;
	}
	if (!isStop(row)) return;
	view.toggled.delete(row.id) || view.toggled.add(row.id);
	view.made = "";
	redraw();
}

function rowAt(event) {
	const box = parts.scroller.getBoundingClientRect();
	if (event.clientY < box.top || event.clientY > box.bottom) return null;
	const y = event.clientY - box.top + parts.scroller.scrollTop;
	return inSight(y, y + 1)[0];
}

/** What happened under the pointer, if it is on the line of events. */
function eventAt(event) {
	const box = parts.box.getBoundingClientRect();
	const y = event.clientY - (box.bottom - FOOT);
	const { x, from } = scale();
	if (y < 0 || y > EVENTS) return "";
	const near = Object.values(state.events).filter((each) => each.at >= from && Math.abs(x(each.at) - event.clientX + box.left) <= APART);
	return near.map((each) => `${moment(Math.round(each.at), now())} ${each.who}: ${each.what}`).join(" · ");
}

function describe({ agents, label: words, counts, name, agent }) {
	if (agents) return `${words}: ${countsText(counts)}`;
	const until = agent.until ? untilText(agent.until, now(), agent.state) : "";
	return `${name}: ${agent.state}${until}${agent.why ? `, ${agent.why}` : ""}`;
}

function tip(row) {
	if (!row?.agent) return row ? describe(row) : "";
	const { since, model, lane, calls } = row.agent;
	return `${describe(row)} · for ${length(now() - since)} · ${model} on ${lane} · ${plural(calls, "call")}`;
}

export function recolour() {
	const style = getComputedStyle(document.documentElement);
	const take = (name) => style.getPropertyValue(`--${name}`).trim();
	for (const [kind, [, tone]] of Object.entries(state.looks)) {
		view.colours[kind] = take(`t-${tone}`) || take(tone);
		view.colours[`${kind} ink`] = take(tone);
	}
	Object.assign(view.colours, { made: view.colours.made + 1, ink: take("ink"), dim: take("dim"), line: take("line"), ground: take("panel"), ahead: take("ahead"), font: `11px ${take("font")}` });
	schedule();
}
