// Make elements agree with a description of them, changing only what differs.
// Text goes in as text: no text of a model, a client or a vendor is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Describe an element, `h("p.class", { properties }, …)`; children may be nested lists, and what is null or false is left out. */
export function h(name, ...children) {
	const [tag, look] = name.split(".");
	const first = children[0];
	const props = first && typeof first === "object" && !first.tag && !Array.isArray(first) ? children.shift() : {};
	return { tag, props: look ? { class: look, ...props } : props, children };
}

/** Make the children of an element agree with these descriptions.
 * One without a key is identified by its place among them, where what is left out has its place, too: a press of a button is never lost. */
export function fill(parent, children) {
	const wanted = [];
	place(children, "", wanted);
	let keys = null;
	let at = parent.firstChild;
	for (const [each, key] of wanted) {
		if (typeof each !== "object") {
			const text = String(each);
			if (at?.nodeType === 3) {
				if (at.data !== text) at.data = text;
				at = at.nextSibling;
			} else parent.insertBefore(document.createTextNode(text), at);
			continue;
		}
		const fits = (element) => element?.localName === each.tag && element.jlKey === key;
		// Who is gone goes first: those behind it keep their places, and the focus.
		while (at?.jlKey && !fits(at) && !(keys ||= new Set(wanted.map((one) => one[1]))).has(at.jlKey)) at = dropped(at);
		let element = at;
		if (fits(at)) at = at.nextSibling;
		else parent.insertBefore(element = [...parent.children].find(fits) || make(parent, each, key), at);
		update(element, each);
	}
	while (at) at = dropped(at);
}

function place(each, path, wanted) {
	if (Array.isArray(each)) each.forEach((child, i) => place(child, `${path}.${i}`, wanted));
	else if (each != null && each !== false && each !== "") wanted.push([each, each.props?.key ?? path]);
}

function dropped(node) {
	const next = node.nextSibling;
	node.remove();
	return next;
}

/** Do what may move elements, and leave the focus where it was. */
export function steady(work) {
	const held = document.activeElement;
	work();
	if (document.activeElement === document.body && held.isConnected) held.focus({ preventScroll: true });
}

/** Work that may be requested many times, and is done once, in the next frame. */
export function inFrame(work) {
	let due = false;
	return () => {
		if (!due) requestAnimationFrame(() => { due = false; steady(work); });
		due = true;
	};
}

function make(parent, { tag }, key) {
	const inSvg = tag === "svg" || parent.namespaceURI === SVG;
	const element = inSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
	return Object.assign(element, { jlKey: key, jlProps: {} });
}

function update(element, wanted) {
	const old = element.jlProps;
	// Children first: a value can be chosen only if its option exists.
	if (!wanted.props.own) fill(element, wanted.children);
	for (const name of Object.keys(old)) if (!(name in wanted.props)) set(element, name, null);
	for (const [name, value] of Object.entries(wanted.props)) if (old[name] !== value) set(element, name, value);
	element.jlProps = wanted.props;
}

function set(element, name, value) {
	if (name === "key" || name === "own") return;
	if (name.startsWith("on")) element[name] = value;
	else if (name.startsWith("--")) element.style.setProperty(name, value);
	else if (name === "value") { if (element.value !== value) element.value = value ?? ""; }
	else if (value == null || value === false) element.removeAttribute(name);
	else element.setAttribute(name, value === true ? "" : value);
}

/** A panel with its name, what is beside it, and the command that shows the same. */
export const panel = (name, twin, beside, ...body) => h("section", { class: `panel ${name.split(" ")[0].toLowerCase()}`, "aria-label": name, key: name },
	h("div.caption", h("h2", name), beside, h("code.twin", `jackline ${twin}`)), body);
/** One thing by itself, with the way back. */
export const detail = (name, ...body) => h("section.panel detail", { "aria-label": name, key: name }, p(link("#/", "← all")), body);
/** A table that scrolls where it is wider than the page; nothing without rows. */
export const table = (caption, heads, rows) => rows.length > 0 && h("div.wide-table", { tabindex: "0", role: "region", "aria-label": caption }, h("table", h("caption", caption),
	h("thead", h("tr", heads.map((word) => h("th", { scope: "col" }, word)))), h("tbody", rows.map((row) => h("tr", row.map((cell) => h("td", cell)))))));
/** A label that loses its middle where it is too long: names often differ at their ends. */
export function middle(text) {
	const cut = Math.max(0, text.length - 9);
	return cut < 4 ? text : h("span.middle", { title: text }, h("span.label-begin", text.slice(0, cut)), h("span.label-end", text.slice(cut)));
}
/** What is drawn, and what it means: `kind` is a class of the style sheet. */
export const marks = (...all) => h("p.marks", { key: "marks" }, all.filter(Boolean).map(([kind, meaning]) => h("span", h("i", { class: `mark ${kind}`, "aria-hidden": "true" }), meaning)));
const AT_FIRST = 12;
const whole = new Set();
let redraw = () => {};
export const onMore = (work) => { redraw = work; };
/** The first rows of a long list, and the button for all of them: the tabulator does not cross hundreds. */
export function firstOf(name, rows) {
	if (rows.length <= AT_FIRST) return [rows, null];
	const all = whole.has(name);
	const turn = () => { whole.delete(name) || whole.add(name); redraw(); };
	return [all ? rows : rows.slice(0, AT_FIRST), h("button.order", { key: `more ${name}`, onclick: turn }, all ? "show fewer" : `show all ${rows.length}`)];
}
export const p = (...words) => h("p", words);
export const dim = (...words) => h("p.dim", words);
export const beside = (...words) => h("span.dim", words);
export const link = (href, ...words) => h("a", { href }, words);
export const runAt = (run) => `#/run/${encodeURIComponent(run)}`;
export const agentAt = (session, agent) => `#/agent/${encodeURIComponent(session)}/${encodeURIComponent(agent)}`;
