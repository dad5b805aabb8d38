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

/** Why no orders can be given, and what to do; empty when they can. */
export function whyNot() {
	if (state.head.read_only) return "Read-only: the service was started with --read-only.";
	return mayOrder() ? "" : "Read-only: open this page with `jackline open` to give orders.";
}

/** A button for an order; none where no orders can be given. `act` is what `ask` takes. */
export function orderButton(word, act, label) {
	if (!mayOrder()) return null;
	return h("button.order", { onclick: () => ask(act()), "aria-label": label }, word);
}

/** Ask before an order: {title, says, verb, path, body, choices, undo}. */
function ask(order) {
	const choice = order.choices ? h("select", { id: "choice", "aria-label": order.choosing }, order.choices.map((each) => h("option", { value: each }, each))) : null;
	const close = () => dialog.close();
	fill(dialog, [
		h("h2", { id: "ask-title" }, order.title),
		p(order.says),
		choice && p(h("label", { for: "choice" }, order.choosing, " "), choice),
		dim(order.undo ? "It can be undone at once." : "It cannot be undone from here."),
		order.twin && p(h("code", order.twin)),
		h("div.row",
			h("button", { onclick: close }, "Leave it"),
			h("button.do", { onclick: () => { const chosen = dialog.querySelector("select")?.value; close(); carryOut(order, chosen); } }, order.verb)),
	]);
	dialog.showModal();
	dialog.querySelector(".do").focus();
}

async function carryOut(order, chosen) {
	const body = typeof order.body === "function" ? order.body(chosen) : order.body;
	say("…");
	const told = await send(order.path, body);
	if (told.error) {
		say(`${told.error.message || told.error}${told.error.next ? ` Next: ${told.error.next}` : ""}`, null, "bad");
		return;
	}
	say(told.says || `${order.title}: done.`, order.undo && (async () => {
		const undo = typeof order.undo === "function" ? order.undo(chosen) : order.undo;
		const back = await send(undo.path, undo.body);
		say(back.error ? back.error.message : "It is as it was before.");
	}));
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
	hiding = setTimeout(() => { toast.className = ""; fill(toast, []); }, 12_000);
}
