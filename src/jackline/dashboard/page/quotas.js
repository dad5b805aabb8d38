// Windows of subscriptions and budgets of runs: how much is used, and when it ends at the present pace.

import { h, link, marks, middle, panel, runAt } from "./dom.js";
import { now, state } from "./feed.js";
import { costOf, dollars, moment, number, percent, soonish } from "./format.js";

const WINDOWS = { "5h": "5-hour window", "7d": "7-day window" };
// From less no pace can be told.
const LEAST_SECONDS = 120;

export function quotas() {
	const rows = [...(state.head.forecast || []).map(quota), ...Object.values(state.runs).filter((run) => run.budget && !run.ended_at).map(budget)].filter(Boolean);
	return rows.length > 0 && panel("Quotas and budgets", "status", null, h("ul.gauges", rows),
		marks(["m-used", "used"], ["m-tight", "more than four fifths"], ["m-pace", "by its end at the present pace"]));
}

function quota(each) {
	const left = (each.resets_at - now()) / 3600;
	const ends = each.used >= 1 ? "used up" : each.ends_at ? `at this pace used up at ${soonish(each.ends_at, now())}` : each.per_hour ? "at this pace it lasts" : "";
	const name = WINDOWS[each.window] || each.window;
	return gauge(`${each.upstream} ${each.account} ${each.window}`, [name, h("span.dim", ` ${each.upstream}`)], `${name} of ${each.upstream}`, each.used, Math.min(1, each.used + each.per_hour * left),
		[`${percent(each.used)}, resets ${moment(Math.round(each.resets_at), now())}`, ends]);
}

function budget(run) {
	const { dollars: most, tokens: mostTokens } = run.budget;
	const inDollars = most != null;
	const [used, limit] = inDollars ? [run.cost, most] : [run.tokens, mostTokens];
	if (!limit) return null;
	const lived = now() - run.created_at;
	const pace = run.state === "running" && lived > LEAST_SECONDS ? used / lived : 0;
	const share = used / limit;
	const open = run.running + run.steps_running;
	const known = run.done + run.failed;
	// What its agents have taken so far is the best guess for those that are still at work.
	const whole = pace && known ? Math.min(1, (share / known) * (known + open)) : share;
	const ends = share >= 1 ? "used up" : pace ? `at this pace used up at ${soonish(now() + (limit - used) / pace, now())}` : "";
	const figure = inDollars ? `${costOf(run.cost, run.unpriced)} of ${dollars(limit)}` : `${number(used)} of ${number(limit)} tokens`;
	return gauge(`run ${run.run}`, ["Budget of ", link(runAt(run.run), middle(run.flow)), h("small", run.run)], `the budget of run ${run.run}`, share, whole, [`${percent(share)}: ${figure}`, ends]);
}

function gauge(key, name, spoken, used, ahead, [figure, forecast]) {
	const share = Math.min(1, Math.max(0, used));
	return h("li", { key }, h("span.what", name), h("span", { class: `bar ${share > 0.8 ? "tight" : ""}`, "--share": share, "--ahead": Math.max(share, ahead), role: "img", "aria-label": `${percent(share)} of ${spoken} used` }),
		h("span.figure", figure, forecast && h("span.dim", ` · ${forecast}`)));
}
