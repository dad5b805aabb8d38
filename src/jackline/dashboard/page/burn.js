// What calls take: tokens or dollars of the last hour, by lane and by run, and how long it lasts.

import { beside, dim, h, link, panel, runAt } from "./dom.js";
import { now, state } from "./feed.js";
import { dollars, moment, number, percent, tokens } from "./words.js";

const WIDE = 600;
const TALL = 110;
const MINUTES = 60;
const WINDOWS = { "5h": "5-hour window", "7d": "7-day window" };

export function burn(filter, setFilter) {
	const inDollars = filter.burn === "dollars";
	const last = Math.floor(now() / 60);
	const lanes = Object.keys(state.spend.lanes || {}).sort();
	const value = (lane, minute) => (state.burn[minute]?.[lane] || [0, 0])[inDollars ? 1 : 0];
	const minutes = Array.from({ length: MINUTES }, (_, i) => last - MINUTES + 1 + i);
	const sums = minutes.map((minute) => lanes.reduce((sum, lane) => sum + value(lane, minute), 0));
	const most = Math.max(...sums, inDollars ? 0.01 : 1);
	const pace = minutes.slice(-6, -1).reduce((sum, minute) => sum + lanes.reduce((all, lane) => all + (state.burn[minute]?.[lane]?.[0] || 0), 0), 0) / 5;
	return panel("Burn", "ls", [
			h("div", { class: "legend" }, lanes.map((lane, i) => h("span", { key: lane, class: "key" }, h("i", { class: `s${i % 7}`, "aria-hidden": "true" }, "■"), ` ${lane} ${tokens(state.spend.lanes[lane].tokens)}`))),
			h("button", { type: "button", class: "order", onclick: () => setFilter({ burn: inDollars ? "" : "dollars" }) }, inDollars ? "show tokens" : "show dollars"),
			beside(`${tokens(pace)} tok/min`)],
		lanes.length ? h("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, preserveAspectRatio: "none", class: "area", role: "img", "aria-label": `${inDollars ? "dollars" : "tokens"} a minute over the last hour, at most ${inDollars ? dollars(most) : number(most)}` },
			areas(lanes, minutes, value, most)) : dim("Nothing was used yet."),
		money(), windows(), byRun());
}

function areas(lanes, minutes, value, most) {
	const base = minutes.map(() => 0);
	return lanes.map((lane, i) => {
		const under = [...base];
		minutes.forEach((minute, at) => { base[at] += value(lane, minute); });
		const point = (sum, at) => `${((at / (MINUTES - 1)) * WIDE).toFixed(1)} ${(TALL - (sum / most) * (TALL - 4)).toFixed(1)}`;
		const path = [...base.map(point), ...under.map(point).reverse()].join("L");
		return h("path", { key: lane, class: `s${i % 7}`, d: `M${path}Z` });
	});
}

function money() {
	const { today, per_hour: pace } = state.spend;
	if (!today?.calls) return null;
	return h("p", { class: "money" }, h("b", null, dollars(today.dollars)),
		beside(` today · ${dollars(pace)} an hour · ${number(today.tokens)} tokens in ${number(today.calls)} calls`,
			today.unpriced ? ` · ${number(today.unpriced)} tokens of models without a known price` : ""));
}

function windows() {
	return (state.head.forecast || []).map((each) => h("div", { class: "limit wide", key: `${each.account} ${each.window}` },
		h("span", null, WINDOWS[each.window] || each.window),
		h("span", { class: `bar ${each.used > 0.95 ? "bad" : each.used > 0.8 ? "slow" : "go"}`, "--share": Math.min(1, each.used), role: "img", "aria-label": `${percent(each.used)} used` }),
		h("span", { class: "figure" }, `${percent(each.used)}, ${each.ends_at ? `ends ${moment(each.ends_at, now())}` : `resets ${moment(each.resets_at, now())}`}`)));
}

function byRun() {
	const runs = Object.entries(state.spend.runs || {}).reverse().slice(0, 8);
	if (!runs.length) return null;
	return h("table", null, h("caption", null, "by run"), h("thead", null, h("tr", null, ["run", "calls", "tokens", "cost", "budget"].map((word) => h("th", { scope: "col" }, word)))),
		h("tbody", null, runs.map(([tag, sums]) => {
			const run = state.runs[tag];
			const limit = run?.budget?.dollars;
			return h("tr", { key: tag }, h("td", null, run ? link(runAt(tag), `${run.flow} ${tag}`) : tag),
				h("td", null, number(sums.calls)), h("td", null, number(sums.tokens)), h("td", null, dollars(sums.dollars)),
				h("td", null, limit == null ? "none" : `${percent(run.cost / limit)} of ${dollars(limit)}`));
		})));
}
