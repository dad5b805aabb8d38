// Make elements agree with a description of them, changing only what differs.
// Text goes in as text: nothing that a model, a client or a vendor said is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Describe an element, `h("p.class", { properties }, …)`; children may be nested lists, and what is null or false is left out. */
export function h(name, ...children) {
	const [tag, look] = name.split(".");
	const given = children[0];
	const props = given && typeof given === "object" && !given.tag && !Array.isArray(given) ? children.shift() : {};
	return { tag, props: look ? { class: look, ...props } : props, children };
}

/** Make the children of an element agree with these descriptions. */
export function fill(parent, children) {
	const wanted = children.flat(Infinity).filter((each) => each != null && each !== false && each !== "");
	let keyed = null;
	let keys = null;
	let at = parent.firstChild;
	for (const each of wanted) {
		if (typeof each !== "object") {
			const text = String(each);
			if (at && at.nodeType === 3) {
				if (at.data !== text) at.data = text;
				at = at.nextSibling;
			} else parent.insertBefore(document.createTextNode(text), at);
			continue;
		}
		const key = each.props.key;
		// Who is gone goes first: those behind it keep their places, and the focus.
		while (at && at.jlKey != null && !fits(at, each, key) && !(keys ||= keysOf(wanted)).has(at.jlKey)) at = dropped(at);
		let element = at;
		if (fits(at, each, key)) at = at.nextSibling;
		else {
			keyed ||= byKey(parent);
			const known = key == null ? null : keyed.get(key);
			element = fits(known, each, key) ? known : make(parent, each, key);
			parent.insertBefore(element, at);
		}
		update(element, each);
	}
	while (at) at = dropped(at);
}

function dropped(node) {
	const next = node.nextSibling;
	node.remove();
	return next;
}

const keysOf = (wanted) => new Set(wanted.map((each) => each.props?.key));

/** Do what may move elements, and leave the focus where it was. */
export function steady(work) {
	const held = document.activeElement;
	work();
	if (document.activeElement === document.body && held.isConnected) held.focus({ preventScroll: true });
}

function fits(element, wanted, key) {
	return element && element.nodeType === 1 && element.localName === wanted.tag && element.jlKey === key;
}

function byKey(parent) {
	const found = new Map();
	for (const each of parent.children) if (each.jlKey != null) found.set(each.jlKey, each);
	return found;
}

function make(parent, wanted, key) {
	const inSvg = wanted.tag === "svg" || (parent.namespaceURI === SVG);
	const element = inSvg ? document.createElementNS(SVG, wanted.tag) : document.createElement(wanted.tag);
	element.jlKey = key;
	element.jlProps = {};
	return element;
}

function update(element, wanted) {
	const old = element.jlProps;
	for (const name of Object.keys(old)) if (!(name in wanted.props)) set(element, name, null);
	for (const [name, value] of Object.entries(wanted.props)) if (old[name] !== value) set(element, name, value);
	element.jlProps = wanted.props;
	if (!wanted.props.own) fill(element, wanted.children);
}

function set(element, name, value) {
	if (name === "key" || name === "own") return;
	if (name.startsWith("on")) element[name] = value;
	else if (name.startsWith("--")) element.style.setProperty(name, value);
	else if (name === "value") { if (element.value !== value) element.value = value ?? ""; }
	else if (value == null || value === false) element.removeAttribute(name);
	else element.setAttribute(name, value === true ? "" : value);
}

/** A panel with its name, what stands beside it, and the command that tells the same. */
export const panel = (name, twin, beside, ...body) => h("section", { class: `panel ${name.split(" ")[0].toLowerCase()}`, "aria-label": name, key: name },
	h("div.caption", h("h2", name), beside, h("code.twin", `jackline ${twin}`)), body);
/** A table that scrolls where it is wider than the page; nothing without rows. */
export const table = (caption, heads, rows) => rows.length > 0 && h("div.wide-table", { tabindex: "0", role: "region", "aria-label": caption }, h("table", h("caption", caption),
	h("thead", h("tr", heads.map((word) => h("th", { scope: "col" }, word)))), h("tbody", rows.map((row) => h("tr", row.map((cell) => h("td", cell)))))));
export const p = (...words) => h("p", words);
export const dim = (...words) => h("p.dim", words);
export const beside = (...words) => h("span.dim", words);
export const link = (href, ...words) => h("a", { href }, words);
export const runAt = (run) => `#/run/${encodeURIComponent(run)}`;
export const agentAt = (session, agent) => `#/agent/${encodeURIComponent(session)}/${encodeURIComponent(agent)}`;
