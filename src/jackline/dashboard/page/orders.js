// Give orders: say what will happen, ask, carry it out, and offer the way back.

import { dim, fill, h, p } from "./dom.js";
import { KEPT, state } from "./feed.js";

const dialog = document.getElementById("ask");
const toast = document.getElementById("toast");
let redraw = () => {};
let hiding = 0;

/** Take the token from the address, where `jackline open` has put it, and out of sight. */
export function takeToken() {
	const found = /^#token=([\w-]+)$/.exec(location.hash);
	if (!found) return;
	sessionStorage.setItem(KEPT, found[1]);
	history.replaceState(null, "", location.pathname + "#/");
}

export const onOrdered = (work) => { redraw = work; };
export const mayOrder = () => !state.head.read_only && sessionStorage.getItem(KEPT) !== null;

/** Why no orders can be given, and what to do. */
export const whyNot = () => !mayOrder() && `Read-only: ${state.head.read_only ? "the service was started with --read-only." : "open this page with `jackline open` to give orders."}`;

const capital = (words) => words[0].toUpperCase() + words.slice(1);

/** A button for an order; none where no orders can be given.
 * The order: {says, path, body, undo, later, twin, verb, choosing, choices}; with choices, body and undo are made of the chosen one. */
export function orderButton(word, label, order) {
	return mayOrder() && h("button.order", { key: label, onclick: () => ask(word, label, order), "aria-label": label }, word);
}

/** Ask before an order. */
function ask(word, label, order) {
	const { choosing, choices, undo, later } = order;
	fill(dialog, [
		h("h2", { id: "ask-title" }, capital(label)),
		p(order.says),
		choices && p(h("label", choosing, " ", h("select", choices.map((each) => h("option", each))))),
		dim(undo ? "It can be undone at once." : later || "It cannot be undone from here."),
		p(h("code", order.twin)),
		h("div.row",
			h("button", { onclick: () => dialog.close() }, "Leave it"),
			h("button.do", { onclick: () => carryOut(label, order, dialog.querySelector("select")?.value) }, order.verb || `${capital(word)} it`)),
	]);
	dialog.showModal();
	dialog.querySelector(".do").focus();
}

async function carryOut(label, { path, body, undo }, chosen) {
	const made = (value) => (typeof value === "function" ? value(chosen) : value);
	dialog.close();
	say("…");
	const told = await send(path, made(body));
	// The service knows best whether, and how, one can go back.
	const back = told.undo ? { path: `run/${told.undo.order}`, body: told.undo } : made(undo);
	tell(told, `${capital(label)}: done.`, back && (async () => tell(await send(back.path, back.body), "It is as it was before.")));
}

function tell({ error, says }, done, undo) {
	if (error) say(`${error.message || error}${error.next ? ` Next: ${error.next}` : ""}`, null, "bad");
	else say(says || done, undo);
}

async function send(path, body) {
	try {
		const answer = await fetch(`/_jackline/${path}`, {
			method: "POST",
			headers: { "content-type": "application/json", "x-jackline-control": sessionStorage.getItem(KEPT) || "" },
			body: JSON.stringify(body),
		});
		const told = await answer.json();
		if (answer.status === 401) {
			// A service that was started anew has a new token.
			sessionStorage.removeItem(KEPT);
			redraw();
			return { error: { message: "The service does not know this page any more.", next: "jackline open" } };
		}
		return answer.ok ? told : { error: told.error || { message: `HTTP ${answer.status}` } };
	} catch {
		return { error: { message: "The service did not answer." } };
	}
}

function say(words, undo, look = "") {
	clearTimeout(hiding);
	toast.className = `shown ${look}`;
	fill(toast, [h("span", words), undo && h("button", { onclick: undo }, "Undo")]);
	hiding = setTimeout(() => { toast.className = ""; fill(toast, []); }, undo ? 60_000 : 12_000);
}
