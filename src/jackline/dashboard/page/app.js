// The whole page: what the address names, updated by the feed.

import { agentPage, load, runPage } from "./details.js";
import { burn } from "./burn.js";
import { fill, h, inFrame, link, steady } from "./dom.js";
import { listen, now, open, state } from "./feed.js";
import { attach, counted, detach, fleetPanel, outdated, recolour, refresh, schedule } from "./fleet.js";
import { events, flows, onFold } from "./flows.js";
import { lanes } from "./lanes.js";
import { onOrdered, takeToken, whyNot } from "./orders.js";
import { waiting } from "./waiting.js";
import { length } from "./format.js";

const top = document.getElementById("top");
const main = document.getElementById("main");
const spoken = document.getElementById("spoken");
const PAUSE = 15_000;
const FILTERS = ["q", "state", "span", "burn"];
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

function header() {
	const { head } = state;
	const verdict = head.verdict || "Waiting for the service…";
	const cut = verdict.indexOf(". ") + 1 || verdict.length;
	return [
		h("div.brand", link("#/", "jackline"), " ", h("small", head.version || "")),
		h("h1", { id: "verdict" }, h("strong", verdict.slice(0, cut)), verdict.slice(cut)),
		h("p", { class: `live ${state.live ? "go" : "bad"}` }, state.live ? `● live · ${location.host}` : `▲ not connected · last update ${length((Date.now() - state.updatedAt) / 1000)} ago, trying again`),
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
		fill(main, [lanes(), h("div.columns", h("div.left", fleetPanel(filter, setFilter, draw), waiting(), burn(filter, setFilter)), h("div.right", flows(filter), events()))]);
		attach(main.querySelector(".fleet"));
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
addEventListener("hashchange", () => { takeToken(); draw(); });
listen((changed) => {
	if (changed.has("live")) recolour();
	if (["agents", "labels", "runs", "lanes", "live"].some((part) => changed.has(part))) outdated();
	soon();
});
// Clocks run down and "now" moves on, also without a change.
setInterval(() => { if (now() - state.at > 0.9) soon(); schedule(); }, 1000);
draw();
