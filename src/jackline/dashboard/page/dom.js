// Make the page's elements agree with a description of them, changing only what differs.
// Text goes in as text: nothing that a model, a client or a vendor said is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Describe an element; children may be nested lists, and what is null or false is left out. */
export function h(tag, props, ...children) {
	return { tag, props: props || {}, children };
}

/** Make the children of an element agree with these descriptions. */
export function fill(parent, children) {
	const wanted = children.flat(Infinity).filter((each) => each != null && each !== false && each !== "");
	let keyed = null;
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
	while (at) {
		const next = at.nextSibling;
		at.remove();
		at = next;
	}
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
	h("div", { class: "caption" }, h("h2", null, name), beside, h("code", { class: "twin" }, `jackline ${twin}`)), body);
export const dim = (...words) => h("p", { class: "dim" }, words);
export const beside = (...words) => h("span", { class: "dim" }, words);
export const link = (href, ...words) => h("a", { href }, words);
export const runAt = (run) => `#/run/${encodeURIComponent(run)}`;
export const agentAt = (session, agent) => `#/agent/${encodeURIComponent(session)}/${encodeURIComponent(agent)}`;
