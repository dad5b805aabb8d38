// What calls use: tokens or dollars of the last hour, by lane and by run, and the forecast.

import { beside, dim, h, link, panel, runAt, table } from "./dom.js";
import { now, state } from "./feed.js";
import { bar } from "./lanes.js";
import { costOf, dollars, moment, number, percent, plural, tokens } from "./format.js";

const WIDE = 600;
const TALL = 110;
const MINUTES = 60;
const WINDOWS = { "5h": "5-hour window", "7d": "7-day window" };

export function burn(filter, setFilter) {
	const inDollars = filter.burn === "dollars";
	const last = Math.floor(now() / 60);
	const lanes = Object.keys(state.spend.lanes || {}).sort();
	const which = inDollars ? 1 : 0;
	const value = (lane, minute) => state.burn[minute]?.[lane]?.[which] || 0;
	const total = (minute, what) => Object.values(state.burn[minute] || {}).reduce((sum, each) => sum + each[what], 0);
	const minutes = Array.from({ length: MINUTES }, (_, i) => last - MINUTES + 1 + i);
	const most = Math.max(...minutes.map((minute) => total(minute, which)), inDollars ? 0.01 : 1);
	const pace = minutes.slice(-6, -1).reduce((sum, minute) => sum + total(minute, 0), 0) / 5;
	return panel("Burn", "ls", [
			h("div.legend", lanes.map((lane, i) => h("span.key", h("i", { class: `s${i % 7}`, "aria-hidden": "true" }, "■"), ` ${lane} ${tokens(state.spend.lanes[lane].tokens)}`))),
			h("button.order", { onclick: () => setFilter({ burn: inDollars ? "" : "dollars" }) }, inDollars ? "show tokens" : "show dollars"),
			beside(`${tokens(pace)} tok/min`)],
		lanes.length ? h("svg.area", { viewBox: `0 0 ${WIDE} ${TALL}`, preserveAspectRatio: "none", role: "img", "aria-label": `${inDollars ? "dollars" : "tokens"} a minute over the last hour, at most ${inDollars ? dollars(most) : number(most)}` },
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
		return h("path", { class: `s${i % 7}`, d: `M${path}Z` });
	});
}

function money() {
	const { today, per_hour: pace } = state.spend;
	if (!today?.calls) return null;
	return h("p.money", h("b", costOf(today.dollars, today.unpriced)),
		beside(` today · ${pace || !today.unpriced ? `${dollars(pace)} an hour · ` : ""}${number(today.tokens)} tokens in ${plural(today.calls, "call")}`,
			today.unpriced ? ` · ${number(today.unpriced)} tokens of models without a known price` : ""));
}

function windows() {
	return (state.head.forecast || []).map((each) => bar(WINDOWS[each.window] || each.window, each.used,
		`${percent(each.used)}, ${each.ends_at ? `ends ${moment(each.ends_at, now())}` : `resets ${moment(each.resets_at, now())}`}`));
}

function byRun() {
	const runs = Object.entries(state.spend.runs || {}).reverse().slice(0, 8);
	return table("by run", ["run", "calls", "tokens", "cost", "budget"], runs.map(([tag, sums]) => {
		const run = state.runs[tag];
		const limit = run?.budget?.dollars;
		return [run ? link(runAt(tag), `${run.flow} ${tag}`) : tag, number(sums.calls), number(sums.tokens), costOf(sums.dollars, sums.unpriced),
			limit == null ? "none" : `${run.unpriced ? "at least " : ""}${percent(run.cost / limit)} of ${dollars(limit)}`];
	}));
}
