// The whole page: what the address asks for, kept up to date by the feed.

import { agentPage, ask, runPage } from "./details.js";
import { burn } from "./burn.js";
import { fill, h } from "./dom.js";
import { listen, now, state } from "./feed.js";
import { attach, counted, detach, fleetPanel, outdated, recolour, refresh, schedule } from "./fleet.js";
import { events, flows, onFold } from "./flows.js";
import { lanes } from "./lanes.js";
import { onOrdered, takeToken, whyNot } from "./orders.js";
import { length } from "./words.js";

const top = document.getElementById("top");
const main = document.getElementById("main");
const FILTERS = { q: "", doing: "", span: "", burn: "" };
let filter = { ...FILTERS };
let shownPath = "";

/** `#/run/ID?q=…` comes to a path and a filter. */
function address() {
	const [path, query = ""] = location.hash.slice(1).split("?");
	const given = new URLSearchParams(query);
	filter = Object.fromEntries(Object.keys(FILTERS).map((name) => [name, given.get(name) || ""]));
	return path.split("/").filter(Boolean).map(decodeURIComponent);
}

function setFilter(change) {
	const wanted = new URLSearchParams(Object.entries({ ...filter, ...change }).filter(([, value]) => value));
	const path = location.hash.slice(1).split("?")[0] || "/";
	history.replaceState(null, "", `#${path}${wanted.size ? `?${wanted}` : ""}`);
	draw();
}

function open(target) {
	if (target) location.hash = target;
	else draw();
}

function header() {
	const { head } = state;
	const verdict = head.verdict || "Waiting for the service…";
	const cut = verdict.indexOf(". ") + 1 || verdict.length;
	const quiet = Math.max(0, (Date.now() - state.heard) / 1000);
	return [
		h("div", { class: "brand" }, h("a", { href: "#/" }, "jackline"), " ", h("small", null, head.version || "")),
		h("h1", { id: "verdict" }, h("strong", null, verdict.slice(0, cut)), verdict.slice(cut)),
		h("p", { class: `live ${state.live ? "go" : "bad"}`, role: "status" }, state.live ? `● live · ${location.host}` : `▲ not connected · last heard ${length(quiet)} ago, trying again`),
		whyNot() && head.version ? h("p", { class: "note dim" }, whyNot()) : null,
		(head.notes || []).map((note) => h("p", { class: "note", key: note }, note)),
		head.journal_ok === false ? h("p", { class: "note bad" }, head.journal_problem) : null,
	];
}

function draw() {
	const path = address();
	fill(top, header());
	const [kind, id] = path;
	const page = location.hash.slice(1).split("?")[0];
	if (kind === "run") {
		ask(page, `run?id=${encodeURIComponent(id)}`, draw);
		fill(main, [runPage()]);
	} else if (kind === "agent") {
		const [session, name] = location.hash.slice(1).split("?")[0].split("/").slice(2).map(decodeURIComponent);
		ask(page, `agent?session=${encodeURIComponent(session)}&agent=${encodeURIComponent(name || "")}`, draw);
		fill(main, [agentPage(session, name || "")]);
	} else {
		refresh(filter);
		fill(main, [lanes(), h("div", { class: "columns", key: "columns" }, h("div", { class: "left" }, fleetPanel(filter, setFilter, open), burn(filter, setFilter)), h("div", { class: "right" }, flows(filter), events()))]);
		attach(main.querySelector(".fleet"));
	}
	if (kind) detach();
	if (page !== shownPath) {
		// Whoever followed a link is now on another page, and should hear so.
		if (shownPath || kind) main.focus();
		shownPath = page;
	}
	document.title = title();
}

function title() {
	const stuck = counted().failed;
	const parked = Object.values(state.lanes).some((lane) => lane.state === "parked");
	return `${stuck ? `▲ ${stuck} · ` : parked ? "■ " : ""}jackline`;
}

let due = false;
function soon() {
	if (due) return;
	due = true;
	requestAnimationFrame(() => { due = false; draw(); });
}

takeToken();
onOrdered(soon);
onFold(soon);
addEventListener("hashchange", () => { takeToken(); draw(); });
listen((changed) => {
	if (changed.has("live")) recolour();
	if (["agents", "labels", "runs", "lanes", "live"].some((part) => changed.has(part))) outdated();
	soon();
});
// Clocks run down and now moves on, also while nothing is told.
setInterval(() => { if (now() - state.at > 0.9) soon(); schedule(); }, 1000);
draw();
