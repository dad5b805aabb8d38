// The fleet's timeline, past and future. Only rows in sight are drawn: 5,000 agents cost what 50 do.

import { agentAt, beside, fill, h, inFrame, panel, runAt } from "./dom.js";
import { now, state } from "./feed.js";
import { hour, length, look, moment, number, plural, short } from "./format.js";

const ROW = 16;
const GROUP = 22;
const TOP = 18;
const FOOT = 20;
const FOLD_ABOVE = 150;
const SPANS = [300, 900, 1800, 3600];
const THIN = ["quiet", "queued", "finished"];
const STEPS = [60, 120, 300, 600, 900, 1800];

const view = { rows: [], height: 0, shown: 0, colours: {}, toggled: new Set(), counts: {}, made: "", span: 3600, ahead: 1200 };
const order = new Intl.Collator([], { numeric: true });
let parts = null;
let redraw = () => {};

export function fleetPanel(filter, setFilter, draw) {
	redraw = draw;
	const { counts } = view;
	const legend = state.agentStates.filter((kind) => counts[kind] || filter.state === kind).map((kind) => {
		const [glyph, colour] = look(kind);
		const on = filter.state === kind;
		return h("button", { key: kind, class: `key ${colour}`, "aria-pressed": String(on), onclick: () => setFilter({ state: on ? "" : kind }) },
			h("i", { "aria-hidden": "true" }, glyph), ` ${kind} ${number(counts[kind] || 0)}`);
	});
	return panel("Fleet", "status --watch", [h("div.legend", legend), beside(`last ${length(view.span)} · next ${length(view.ahead)}`)],
		h("div.filters",
			h("label", "find ", h("input", { type: "search", value: filter.q, placeholder: "agent, session, run, model", oninput: (event) => setFilter({ q: event.target.value }) })),
			h("label", "span ", h("select", { value: filter.span, onchange: (event) => setFilter({ span: event.target.value }) },
				["", ...SPANS].map((value) => h("option", { value }, value ? length(value) : "fits")))),
			beside(view.shown === state.agents.size ? plural(view.shown, "agent") : `${number(view.shown)} of ${plural(state.agents.size, "agent")}`)),
		h("div.timeline", { own: true }),
		h("p.dim tip", { "aria-hidden": "true", own: true }));
}

export function attach(section) {
	const box = section.querySelector(".timeline");
	if (!box || parts?.box === box) return;
	fill(box, [h("canvas", { "aria-hidden": "true" }), h("div.scroller", { tabindex: 0, role: "region", "aria-label": "Agents, one in a row" }, h("ul.names", { own: true }), h("div", { own: true }))]);
	const [canvas, scroller] = box.children;
	const [names, size] = scroller.children;
	parts = { box, canvas, scroller, size, names, tip: section.querySelector(".tip"), pen: canvas.getContext("2d") };
	scroller.onscroll = schedule;
	scroller.onclick = (event) => { const row = rowAt(event); if (row && !event.target.closest("a,button")) choose(row); };
	scroller.onmousemove = (event) => { parts.tip.textContent = tip(rowAt(event)); };
	scroller.onmouseleave = () => { parts.tip.textContent = ""; };
	new ResizeObserver(schedule).observe(box);
	matchMedia("(prefers-color-scheme: dark)").onchange = recolour;
	recolour();
}

export function detach() { parts = null; }

export const outdated = () => { view.made = ""; };
export const counted = () => view.counts;

/** The rows, computed again when agents or the filter change. */
export function refresh(filter) {
	const wanted = JSON.stringify(filter);
	if (view.made === wanted) return;
	view.made = wanted;
	view.counts = {};
	const query = filter.q.trim().toLowerCase();
	const groups = new Map();
	view.shown = 0;
	for (const [key, agent] of state.agents) {
		tally(view.counts, agent.state);
		if (filter.state && agent.state !== filter.state) continue;
		const name = label(agent);
		if (query && !`${name} ${key} ${agent.tag} ${agent.model} ${agent.lane} ${agent.state} ${groupLabel(agent)}`.toLowerCase().includes(query)) continue;
		view.shown += 1;
		const id = agent.tag || agent.session;
		let group = groups.get(id);
		if (!group) groups.set(id, (group = { id, label: groupLabel(agent), run: state.runs[agent.tag] ? agent.tag : "", agents: [], counts: {} }));
		group.agents.push({ key, agent, name });
		tally(group.counts, agent.state);
	}
	view.rows = [];
	view.height = 0;
	const folds = view.shown > FOLD_ABOVE;
	for (const group of groups.values()) {
		const single = group.agents.length === 1;
		group.folded = !single && folds !== view.toggled.has(group.id);
		if (!single) push({ group, key: `g ${group.id}`, height: GROUP });
		if (!group.folded && group.agents.length < 200) group.agents.sort((one, other) => order.compare(one.name, other.name));
		if (!group.folded) for (const each of group.agents) push({ ...each, name: !single ? each.name : group.run ? `${each.name} · ${group.label}` : group.label, height: ROW });
	}
	span(filter);
	schedule();
}

const tally = (counts, word) => { counts[word] = (counts[word] || 0) + 1; };

function push(row) {
	row.y = view.height;
	view.height += row.height;
	view.rows.push(row);
}

function span(filter) {
	const at = now();
	let oldest = at;
	for (const each of state.stretches.values()) if (each.flat.length) oldest = Math.min(oldest, state.epoch + each.flat[0] / 10);
	view.span = Number(filter.span) || SPANS.find((each) => at - oldest <= each) || 3600;
	const resets = Object.values(state.lanes).map((lane) => lane.until - at).filter((left) => left < Math.max(view.span, SPANS[2]));
	view.ahead = Math.max(view.span / 3, ...resets.map((left) => left * 1.1));
	if (!filter.span) view.span = Math.max(view.span, view.ahead);
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
	const { box, canvas, scroller, size, pen } = parts;
	const width = box.clientWidth;
	view.x0 = width < 560 ? 96 : 150;
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
	const scale = axis(width, tall);
	pen.save();
	pen.beginPath();
	pen.rect(0, TOP, width, tall);
	pen.clip();
	for (const row of seen) row.group ? drawGroup(row, top, scale) : drawAgent(row, top, scale);
	pen.restore();
	lines(scale, tall);
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

function axis(width, tall) {
	const at = now();
	const { x0 } = view;
	const from = at - view.span;
	const perSecond = (width - x0) / (view.span + view.ahead);
	const x = (time) => x0 + (time - from) * perSecond;
	rect("ahead", x(at), TOP, width - x(at), tall);
	const step = STEPS.find((each) => each * perSecond > 64) || 3600;
	parts.pen.font = view.colours.font;
	for (let time = Math.ceil(from / step) * step; time < at + view.ahead; time += step) {
		rect("line", Math.round(x(time)), TOP, 1, tall);
		if (x(time) > x0 + 16 && x(time) < width - 16) write("dim", hour(time), "center", x(time), tall + TOP + 14);
	}
	return { x, from, at, until: at + view.ahead, width };
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

/** A folded group is what its agents do now, in words and as shares: no times. */
function drawGroup(row, top, { x, at, from }) {
	if (!row.group.folded) return;
	const y = row.y - top + TOP + 4;
	const wide = (x(at) - x(from)) / row.group.agents.length;
	let left = x(from);
	write("dim", countsText(row.group.counts), "left", left, y + 8, x(at) - left);
	for (const kind of state.agentStates) {
		const many = row.group.counts[kind] || 0;
		if (many) rect(kind, left, y + 12, Math.max(1, many * wide - 1), 3);
		left += many * wide;
	}
}

const countsText = (counts) => state.agentStates.filter((kind) => counts[kind]).map((kind) => `${number(counts[kind])} ${kind}`).join(", ");

function lines({ x, at, width }, tall) {
	const mark = (time, colour, words, align, place) => {
		rect(colour, Math.round(x(time)), TOP - 4, 1.5, tall + 4);
		write(colour, words, align, place, 12);
	};
	mark(at, "ink", "now", "right", x(at) - 5);
	for (const lane of Object.values(state.lanes)) {
		if (lane.state !== "parked" || !(lane.until > at)) continue;
		const room = width - x(lane.until);
		const words = `${width - x(at) > 95 ? "reset " : ""}${moment(lane.until, at)}`;
		if (room > 76) mark(lane.until, "parked", words, "left", x(lane.until) + 5);
		else mark(lane.until, "parked", room > 0 ? words : `${words} →`, "right", width - 4);
	}
}

/** Names in sight, and the one that has the focus, are real links: for keyboards and screen readers. */
function name(seen) {
	parts.names.style.width = `${view.x0 - 6}px`;
	const held = parts.names.querySelector(":focus")?.closest("li").jlKey;
	const kept = held ? view.rows.filter((row) => row.key === held && !seen.includes(row)) : [];
	fill(parts.names, [...seen, ...kept].map((row) => {
		const props = { key: row.key, "--y": `${row.y}px`, class: row.group ? "group" : "" };
		if (row.group) {
			return h("li", props, h("button", { "aria-expanded": String(!row.group.folded), "aria-label": describe(row), onclick: () => choose(row) },
				`${row.group.folded ? "▸" : "▾"} ${row.group.label}`), row.group.run && h("a", { href: runAt(row.group.run), "aria-label": `run ${row.group.run}` }, "↗"));
		}
		const { agent } = row;
		const [glyph, colour] = look(agent.state);
		return h("li", props, h("a", { href: agentAt(agent.session, agent.agent), "aria-label": describe(row) },
			h("span", { class: `glyph ${colour}`, "aria-hidden": "true" }, glyph), row.name));
	}));
}

function choose(row) {
	if (!row.group) {
		location.hash = agentAt(row.agent.session, row.agent.agent);
		return;
	}
	view.toggled.delete(row.group.id) || view.toggled.add(row.group.id);
	outdated();
	redraw();
}

function rowAt(event) {
	const y = event.clientY - parts.scroller.getBoundingClientRect().top + parts.scroller.scrollTop;
	return inSight(y, y + 1)[0];
}

function describe({ group, name, agent }) {
	if (group) return `${group.label}: ${countsText(group.counts)}`;
	const until = agent.until ? ` until ${moment(agent.until, now())}` : "";
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
	for (const kind of state.agentStates) view.colours[kind] = take(`t-${look(kind)[1]}`) || take(look(kind)[1]);
	Object.assign(view.colours, { ink: take("ink"), dim: take("dim"), line: take("line"), ground: take("panel"), ahead: take("ahead"), font: `11px ${take("font")}` });
	schedule();
}
