// Orders: explain, confirm, send, and offer to undo.

import { dim, fill, h, p } from "./dom.js";
import { TOKEN_KEY, state } from "./feed.js";

const dialog = document.getElementById("ask");
const toast = document.getElementById("toast");
let redraw = () => {};
let hiding = 0;

/** Move the token from the address, where `jackline open` has put it, to the session. */
export function takeToken() {
	const found = /^#token=([\w-]+)$/.exec(location.hash);
	if (!found) return;
	sessionStorage.setItem(TOKEN_KEY, found[1]);
	history.replaceState(null, "", location.pathname + "#/");
}

export const onOrdered = (work) => { redraw = work; };
export const mayOrder = () => !state.head.read_only && sessionStorage.getItem(TOKEN_KEY) !== null;

/** Why no orders can be given, and what to do. */
export const whyNot = () => !mayOrder() && `Read-only: ${state.head.read_only ? "the service was started with --read-only." : "open this page with `jackline open` to give orders."}`;

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** A button for an order; none where no orders can be given.
 * The order: {says, loses, path, body, undo, later, twin, verb, choosing, choices}; with choices, body and undo are made of the chosen one.
 * `loses` says what will be gone: such a button looks dangerous, and is not the one that Enter presses. */
export function orderButton(word, label, order) {
	return mayOrder() && h("button", { key: label, class: order.loses ? "order danger" : "order", onclick: () => confirm(word, label, order), "aria-label": label }, word);
}

/** Confirm an order. */
function confirm(word, label, order) {
	const { choosing, choices, undo, later, loses } = order;
	fill(dialog, [
		h("h2", { id: "ask-title" }, capital(label)),
		p(order.says),
		loses && h("p.loses", h("b", "Lost: "), loses),
		choices && p(h("label", choosing, " ", h("select", choices.map((each) => h("option", each))))),
		dim(undo ? "It can be undone at once." : later || "It cannot be undone from here."),
		p(h("code", order.twin)),
		h("div.row",
			h("button", { onclick: () => dialog.close() }, "Leave it"),
			h("button", { class: loses ? "do danger" : "do", onclick: () => execute(label, order, dialog.querySelector("select")?.value) }, order.verb || `${capital(word)} it`)),
	]);
	dialog.showModal();
	dialog.querySelector(loses ? "button" : ".do").focus();
}

async function execute(label, { path, body, undo }, chosen) {
	const made = (value) => (typeof value === "function" ? value(chosen) : value);
	dialog.close();
	show("…");
	const result = await send(path, made(body));
	// The service knows best whether, and how, it can be undone.
	const back = result.undo ? { path: `run/${result.undo.order}`, body: result.undo } : made(undo);
	report(result, `${capital(label)}: done.`, back && (async () => report(await send(back.path, back.body), "It is as it was before.")));
}

function report({ error, says }, done, undo) {
	if (error) show(`${error.message || error}${error.hint ? ` Hint: ${error.hint}` : ""}`, null, "bad");
	else show(says || done, undo);
}

async function send(path, body) {
	try {
		const answer = await fetch(`/_jackline/${path}`, {
			method: "POST",
			headers: { "content-type": "application/json", "x-jackline-control": sessionStorage.getItem(TOKEN_KEY) || "" },
			body: JSON.stringify(body),
		});
		const result = await answer.json();
		if (answer.status === 401) {
			// A restarted service has a new token.
			sessionStorage.removeItem(TOKEN_KEY);
			redraw();
			return { error: { message: "The service does not accept this page's token any more.", hint: "jackline open" } };
		}
		return answer.ok ? result : { error: result.error || { message: `HTTP ${answer.status}` } };
	} catch {
		return { error: { message: "The service did not answer." } };
	}
}

function show(text, undo, look = "") {
	clearTimeout(hiding);
	toast.className = `shown ${look}`;
	fill(toast, [h("span", text), undo && h("button", { onclick: undo }, "Undo")]);
	hiding = setTimeout(() => { toast.className = ""; fill(toast, []); }, undo ? 60_000 : 12_000);
}
