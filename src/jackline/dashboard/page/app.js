// The whole page: what the address names, updated by the feed.

import { burn, moved } from "./burn.js";
import { costs, onCosts } from "./costs.js";
import { agentPage, load, runPage } from "./details.js";
import { fill, h, inFrame, link, onMore, steady } from "./dom.js";
import { listen, now, open, state } from "./feed.js";
import { attach, counted, detach, fleetPanel, onPointed, outdated, recolour, refresh, schedule } from "./fleet.js";
import { events, flows, onFold } from "./flows.js";
import { answers, lanes } from "./lanes.js";
import { help, listenToKeys } from "./keys.js";
import { onOrdered, takeToken, whyNot } from "./orders.js";
import { quotas } from "./quotas.js";
import { isEmpty, start } from "./start.js";
import { waiting } from "./waiting.js";
import { length } from "./format.js";

const top = document.getElementById("top");
const main = document.getElementById("main");
const spoken = document.getElementById("spoken");
const PAUSE = 15_000;
const FILTERS = ["q", "state", "span", "burn", "by", "days", "sort"];
let filter = {};
let shownPath = "";
let spokeAt = 0;

/** `#/run/ID?q=…` is a path and a filter. */
function address() {
	const [path, query = ""] = location.hash.slice(1).split("?");
	const parameters = new URLSearchParams(query);
	filter = Object.fromEntries(FILTERS.map((name) => [name, parameters.get(name) || ""]));
	return path || "/";
}

function setFilter(change) {
	const wanted = new URLSearchParams(Object.entries({ ...filter, ...change }).filter(([, value]) => value));
	history.replaceState(null, "", `#${address()}${wanted.size ? `?${wanted}` : ""}`);
	draw();
}

/** The verdict is the sentence of `jackline status`; what needs a person stands out. */
function verdictParts(verdict) {
	const cut = verdict.indexOf(". ") + 1 || verdict.length;
	const needs = /\d[\d,]* needs? you/.exec(verdict.slice(cut));
	if (!needs) return [h("strong", verdict.slice(0, cut)), verdict.slice(cut)];
	const from = cut + needs.index;
	return [h("strong", verdict.slice(0, cut)), verdict.slice(cut, from), h("strong.bad", needs[0]), verdict.slice(from + needs[0].length)];
}

function header() {
	const { head } = state;
	return [
		h("div.brand", link("#/", "jackline"), " ", h("small", head.version || "")),
		h("h1", { id: "verdict" }, verdictParts(head.verdict || "Waiting for the service…")),
		h("p", { class: `live ${state.live ? "go" : "bad"}` }, state.live ? `● live · ${location.host}` : `▲ not connected · last update ${length((Date.now() - state.updatedAt) / 1000)} ago, trying again`,
			h("span.dim", head.zone && ` · times in ${head.zone} `), h("button.order", { onclick: help, "aria-keyshortcuts": "?", "aria-label": "help" }, "?")),
		state.locked && h("p.note", h("label", "This gateway needs a token. Open it with `jackline open`, or enter its token here: ", h("input", { type: "password", onchange: (event) => open(event.target.value) }))),
		head.version && h("p.note dim", whyNot()),
		(head.notes || []).map((note) => h("p.note", note)),
		head.journal_ok === false && h("p.note bad", head.journal_problem),
	];
}

/** Read out the verdict for screen readers, without its clocks, and not all the time. */
function speak() {
	const text = (state.head.verdict || "").replace(/ \(in [^)]*\)| in [\d.]+ m?s(?=[.,;])/g, "");
	if (Date.now() - spokeAt < PAUSE || spoken.textContent === text) return;
	spokeAt = Date.now();
	spoken.textContent = text;
}

const draw = () => steady(drawAll);

function drawAll() {
	const page = address();
	const [, kind, id, name = ""] = page.split("/").map(decodeURIComponent);
	speak();
	fill(top, header());
	if (kind === "run") {
		load(page, new URLSearchParams({ id }), draw);
		fill(main, [runPage()]);
	} else if (kind === "agent") {
		load(page, new URLSearchParams({ session: id, agent: name }), draw);
		fill(main, [agentPage(id, name)]);
	} else {
		refresh(filter);
		fill(main, [start(), lanes(), answers(), !isEmpty() && h("div.columns", { key: "columns" },
			h("div.left", fleetPanel(filter, setFilter, draw), burn(filter, setFilter), waiting(), costs(filter, setFilter)), h("div.right", flows(filter), quotas(), events()))]);
		const fleet = main.querySelector(".fleet");
		fleet ? attach(fleet) : detach();
	}
	if (kind) detach();
	if (page !== shownPath) {
		// A screen reader announces the new page.
		if (shownPath || kind) main.focus();
		shownPath = page;
	}
	const { failed, parked } = counted();
	document.title = `${failed ? `▲ ${failed} · ` : parked ? "■ " : ""}jackline`;
}

const soon = inFrame(drawAll);

takeToken();
onOrdered(soon);
onFold(soon);
onCosts(soon);
onMore(soon);
onPointed(moved);
listenToKeys();
addEventListener("hashchange", () => { takeToken(); draw(); });
listen((changed) => {
	if (changed.has("live")) recolour();
	if (["agents", "labels", "runs", "lanes", "live"].some((part) => changed.has(part))) outdated();
	soon();
});
// "Now" moves on, also without a change.
setInterval(() => { if (now() - state.at > 0.9) soon(); schedule(); }, 1000);
draw();
