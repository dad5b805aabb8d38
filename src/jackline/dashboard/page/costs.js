// Who costs most: agents, sessions, models, runs and days, from the journal, sorted as one likes.

import { agentAt, dim, firstOf, h, link, middle, panel, runAt } from "./dom.js";
import { state } from "./feed.js";
import { costOf, exact, number, percent, plural, short } from "./format.js";

const VIEWS = ["agent", "session", "model", "run", "day"];
const DAYS = { "": "today", 7: "7 days", 30: "30 days" };
const COLUMNS = ["calls", "tokens", "cost"];
const EVERY = 10_000;
const loaded = { days: null, at: 0, document: null, failed: "" };
const order = new Intl.Collator([], { numeric: true });
let redraw = () => {};
export const onCosts = (work) => { redraw = work; };

/** Load the sums when they are first shown, and now and then afterwards while somebody looks. */
async function load(days) {
	if (!state.live || document.hidden || (loaded.days === days && Date.now() - loaded.at < EVERY)) return;
	if (loaded.days !== days) Object.assign(loaded, { document: null, failed: "" });
	Object.assign(loaded, { days, at: Date.now() });
	try {
		const answer = await fetch(`/_jackline/costs?days=${days || 1}`);
		const found = await answer.json();
		if (loaded.days !== days) return;
		Object.assign(loaded, answer.ok ? { document: found, failed: "" } : { failed: found.error?.message || `HTTP ${answer.status}` });
	} catch {
		loaded.failed = "The service did not answer.";
	}
	redraw();
}

export function costs(filter, setFilter) {
	load(filter.days);
	const view = VIEWS.includes(filter.by) ? filter.by : "agent";
	const [by, up] = sorting(filter.sort, view);
	const found = loaded.document;
	return panel("Costs", "cost", [
			h("div.legend", { role: "group", "aria-label": "costs by" }, VIEWS.map((each) => h("button.key", { key: each, "aria-pressed": String(each === view), onclick: () => setFilter({ by: each, sort: "" }) }, `by ${each}`))),
			h("label", "of ", h("select", { value: filter.days, onchange: (event) => setFilter({ days: event.target.value }) }, Object.entries(DAYS).map(([value, words]) => h("option", { value }, words))))],
		!found ? dim(loaded.failed || "…") : found.total.calls ? listed(found, view, by, up, setFilter) : dim("Nothing was used in this time."));
}

/** `sort=-tokens` is the other way round; at first it is who costs most, and the latest day. */
function sorting(wanted, view) {
	const name = wanted.replace("-", "");
	const by = name === "name" || COLUMNS.includes(name) ? name : view === "day" ? "name" : "cost";
	return [by, wanted.startsWith("-")];
}

function listed({ at, total, by: lists }, view, by, up, setFilter) {
	const { rows, more, rest } = lists[view];
	const value = { calls: (row) => row.calls, tokens: (row) => row.tokens, cost: (row) => row.dollars };
	const sorted = rows.map((row) => ({ ...row, name: nameOf(view, row.key) }));
	sorted.sort((one, other) => (by === "name" ? (view === "day" ? -1 : 1) * order.compare(one.name, other.name) : value[by](other) - value[by](one) || other.tokens - one.tokens));
	if (up) sorted.reverse();
	const [shown, button] = firstOf("costs", sorted);
	const most = Math.max(...rows.map((row) => row.dollars || 0)) || 0;
	const heads = [["name", view], ...COLUMNS.map((each) => [each, each])].map(([name, words]) => h("th", { scope: "col", class: name === "name" ? "" : "num", "aria-sort": name !== by ? "none" : up === (name === "name" && view !== "day") ? "descending" : up ? "ascending" : name === "name" && view !== "day" ? "ascending" : "descending" },
		h("button.sort", { onclick: () => setFilter({ sort: name === by && !up ? `-${name}` : name }) }, words, h("span", { "aria-hidden": "true" }, name === by ? (up ? " ▴" : " ▾") : ""))));
	const line = (key, name, sums, kind) => h("tr", { key, class: kind }, h("th", { scope: "row" }, name), h("td.num", number(sums.calls)), h("td.num", number(sums.tokens)), h("td.num", costOf(sums.dollars, sums.unpriced)),
		h("td.part", total.dollars > 0 && kind !== "sum" && h("span.bar", { "--share": most ? sums.dollars / most : 0, role: "img", "aria-label": `${percent(sums.dollars / total.dollars)} of the cost` })));
	return [
		h("div.wide-table", { tabindex: "0", role: "region", "aria-label": "costs" }, h("table", h("caption", `${more ? `The ${number(rows.length)} dearest of ${number(rows.length + more)}` : plural(rows.length, view)}; ${costOf(total.dollars, total.unpriced)} in all, as of ${exact(at)}`),
			h("thead", h("tr", heads, h("th", { scope: "col" }, h("span.unseen", "share")))),
			h("tbody", shown.map((row) => line(row.key.join("|"), cell(view, row), row)), more > 0 && line("rest", `${number(more)} more`, rest, "sum"), line("total", "all", total, "sum")))),
		button,
	];
}

function nameOf(view, key) {
	if (view === "agent") return state.labels[key[1]] || (key[1] ? short(key[1]) : key[0] ? "main" : "no session");
	if (view === "session") return key[0] || "no session";
	if (view === "run") return key[0] ? (state.runs[key[0]] ? `${state.runs[key[0]].flow} ${key[0]}` : `tag ${key[0]}`) : "no run";
	return key[0];
}

function cell(view, { key, name }) {
	if (view === "agent" && (key[0] || key[1])) return [link(agentAt(...key), middle(name)), h("span.dim", key[0] && ` ${short(key[0])}`)];
	if (view === "session" && key[0]) return link(`#/?q=${encodeURIComponent(key[0])}`, middle(name));
	if (view === "run" && state.runs[key[0]]) return link(runAt(key[0]), middle(name));
	return middle(name);
}
