// What calls use: tokens or dollars a minute by lane, on the time axis of the fleet.

import { axis, resets, scale } from "./axis.js";
import { beside, dim, h, marks, panel } from "./dom.js";
import { state } from "./feed.js";
import { point } from "./fleet.js";
import { costOf, dollars, hour, number, plural, tokens } from "./format.js";

const WIDE = 1000;
const TALL = 110;
const MOST_LANES = 6;
const OTHERS = "other lanes";

export function burn(filter, setFilter) {
	const inDollars = filter.burn === "dollars";
	const which = inDollars ? 1 : 0;
	const { names, value, used } = series(which);
	const places = scale();
	const minutes = minutesOf(places);
	const total = (minute, what) => Object.values(state.burn[minute] || {}).reduce((sum, each) => sum + each[what], 0);
	const most = Math.max(...minutes.map((minute) => total(minute, which)), inDollars ? 0.01 : 1);
	const last = Math.floor(places.at / 60);
	const pace = [1, 2, 3, 4, 5].reduce((sum, back) => sum + total(last - back, 0), 0) / 5;
	const share = (time) => (places.x(time) - axis.names) / Math.max(1, axis.width - axis.names);
	return panel("Burn", "ls", [
			h("div.legend", names.map((lane, i) => h("span.key", h("i", { class: `s${i}`, "aria-hidden": "true" }, "■"), ` ${lane} ${tokens(used(lane))}`))),
			h("button.order", { onclick: () => setFilter({ burn: inDollars ? "" : "dollars" }) }, inDollars ? "show tokens" : "show dollars"),
			beside(`${tokens(pace)} tok/min`)],
		names.length ? h("div.plot", { onmousemove: (event) => point(event.clientX - event.currentTarget.getBoundingClientRect().left + axis.names), onmouseleave: () => point(null) },
			h("svg.area", { viewBox: `0 0 ${WIDE} ${TALL}`, preserveAspectRatio: "none", role: "img", "aria-label": `${inDollars ? "dollars" : "tokens"} a minute, at most ${inDollars ? dollars(most) : number(most)}; the table of costs has the sums` },
				h("rect.future", { x: share(places.at) * WIDE, y: 0, width: (1 - share(places.at)) * WIDE, height: TALL }),
				steps(names, minutes, value, most, places, share)),
			h("span.scale", inDollars ? `${dollars(most)} a minute` : `${tokens(most)} a minute`),
			places.ticks.map((time) => h("span.tick", { key: `t${time}`, "--x": share(time) }, share(time) > 0.02 && share(time) < 0.97 && hour(time))),
			h("span.moment", { key: "now", "--x": share(places.at) }), resets().filter((reset) => share(reset) < 1).map((reset) => h("span.moment reset", { key: `r${reset}`, "--x": share(reset) })),
			h("span.cursor", { key: "cursor", own: true })) : dim("Nothing was used yet."),
		money(), names.length > 0 && marks(["m-now", "now"], resets().length > 0 && ["m-reset", "reset of a quota"], ["m-steps", "used in a minute, one shade for each lane"]));
}

/** The line under the pointer: moved without drawing anything else. */
export function moved() {
	const line = document.querySelector(".plot .cursor");
	if (!line) return;
	const { x } = scale();
	line.style.display = axis.cursor == null ? "none" : "block";
	if (axis.cursor != null) line.style.left = `${x(axis.cursor) - axis.names}px`;
}

/** The lanes that used most, and all others as one. */
function series(which) {
	const spent = state.spend.lanes || {};
	const sorted = Object.keys(spent).sort((one, other) => spent[other].tokens - spent[one].tokens || (one < other ? -1 : 1));
	const named = sorted.length > MOST_LANES ? sorted.slice(0, MOST_LANES - 1) : sorted;
	const rest = sorted.slice(named.length);
	const sum = (lane, valueOf) => (lane === OTHERS ? rest.reduce((all, each) => all + valueOf(each), 0) : valueOf(lane));
	return {
		names: rest.length ? [...named, OTHERS] : named,
		value: (lane, minute) => sum(lane, (each) => state.burn[minute]?.[each]?.[which] || 0),
		used: (lane) => sum(lane, (each) => spent[each].tokens),
	};
}

function minutesOf({ from, at }) {
	const first = Math.floor(from / 60);
	return Array.from({ length: Math.floor(at / 60) - first + 1 }, (_, i) => first + i);
}

/** One step for each minute: nothing between two minutes is guessed. */
function steps(lanes, minutes, value, most, { from, at }, share) {
	const base = minutes.map(() => 0);
	const y = (sum) => (TALL - (sum / most) * (TALL - 14)).toFixed(1);
	return lanes.map((lane, i) => {
		const parts = minutes.map((minute, place) => {
			const under = base[place];
			base[place] += value(lane, minute);
			if (base[place] === under) return "";
			const left = (share(Math.max(from, minute * 60)) * WIDE).toFixed(1);
			const right = (share(Math.min(at, minute * 60 + 60)) * WIDE - 0.6).toFixed(1);
			return `M${left} ${y(under)}V${y(base[place])}H${right}V${y(under)}Z`;
		});
		return h("path", { key: lane, class: `s${i}`, d: parts.join("") || "M0 0" }, h("title", lane));
	});
}

function money() {
	const { today, per_hour: pace } = state.spend;
	if (!today?.calls) return null;
	return h("p.money", h("b", costOf(today.dollars, today.unpriced)),
		beside(` today · ${pace || !today.unpriced ? `${dollars(pace)} an hour · ` : ""}${number(today.tokens)} tokens in ${plural(today.calls, "call")}`,
			today.unpriced ? ` · ${number(today.unpriced)} tokens of models without a known price` : ""));
}
