// The keyboard: find, go from row to row, and what the keys and the drawings mean.

import { fill, h, p } from "./dom.js";
import { state } from "./feed.js";
import { step } from "./fleet.js";
import { look } from "./format.js";

const dialog = document.getElementById("ask");
const KEYS = [["/", "find an agent, a session, a run or a model"], ["j, k", "the next agent or group, the one before"], ["Enter", "open it, or fold a group"], ["← →", "on the edge of the names: make them narrower or wider"], ["Esc", "leave what is open"], ["?", "this help"]];

export function listenToKeys() {
	addEventListener("keydown", (event) => {
		if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
		const at = event.target instanceof Element ? event.target : document.body;
		if (event.key === "Escape" && at.matches("input[type=search]")) at.blur();
		if (at.closest("input,select,textarea,dialog")) return;
		const act = { "/": find, j: () => step(1), k: () => step(-1), "?": help }[event.key];
		if (!act) return;
		event.preventDefault();
		act();
	});
}

function find() {
	const field = document.querySelector(".fleet input[type=search]");
	field?.focus();
	field?.select();
}

export function help() {
	fill(dialog, [
		h("h2", { id: "ask-title" }, "Keys"),
		h("dl", KEYS.map(([key, what]) => [h("dt", h("kbd", key)), h("dd", what)])),
		h("h2", "States"),
		h("dl", state.agentStates.map((name) => [h("dt", { class: look(name)[1] }, `${look(name)[0]} ${name}`), h("dd", state.meanings[name] || "")])),
		p("Colours are those of states. Red needs you, or destroys something. Shades of blue-grey are amounts, and mean no state."),
		h("div.row", h("button", { onclick: () => dialog.close() }, "Close")),
	]);
	dialog.showModal();
}
