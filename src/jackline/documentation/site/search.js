// Rank the sections for what is typed. Nothing is sent anywhere: the index came with the pages.
// Rules: every word counts by how rare it is; a heading and a title count more than the text; a
// beginning or another ending of a word counts less; a heading that is a question counts more, as it
// is what somebody asked; history comes after pages that are valid now.
"use strict";

const COMMON = new Set("a an and are as at be by can did do does for from have how i if in is it me my of on or over so some that the their there this to use was we what when where which who why will with you your".split(" "));
const MOST_SHOWN = 12;

function stem(word) {
	return word.replace(/(?:ies|y)$/, "i").replace(/(?:ing|ed|es|s|er|e)$/, "") || word;
}

function asked(text) {
	const all = text.toLowerCase().match(/[a-z0-9]+(?:[-_.][a-z0-9]+)*/g) || [];
	const rare = all.filter((word) => !COMMON.has(word));
	return rare.length ? rare : all;
}

function counted(text) {
	const found = new Map();
	for (const word of text.toLowerCase().match(/[a-z0-9]+/g) || []) {
		const key = stem(word);
		found.set(key, (found.get(key) || 0) + 1);
	}
	return found;
}

function prepare(entries) {
	const sections = entries.map((entry) => {
		const words = new Map();
		let length = 0;
		for (const [word, count] of Object.entries(entry.words)) {
			const key = stem(word);
			words.set(key, (words.get(key) || 0) + count);
			length += count;
		}
		return { entry, words, length, heading: counted(entry.heading), title: counted(entry.title) };
	});
	const having = new Map();
	for (const { words, heading, title } of sections)
		for (const word of new Set([...words.keys(), ...heading.keys(), ...title.keys()]))
			having.set(word, (having.get(word) || 0) + 1);
	const mean = sections.reduce((sum, { length }) => sum + length, 0) / (sections.length || 1);
	return { sections, having, mean };
}

// Okapi BM25, with headings and titles as further fields.
function rank({ sections, having, mean }, text) {
	const wanted = asked(text).map(stem);
	const rarity = (word) => Math.log(1 + (sections.length + 0.5) / ((having.get(word) || 0) + 0.5));
	const known = wanted.map((word) =>
		having.has(word) ? [word, 1] : [[...having.keys()].find((other) => other.startsWith(word)), 0.6],
	);
	const scored = [];
	for (const section of sections) {
		let score = 0;
		let met = 0;
		for (const [word, share] of known) {
			if (word === undefined) continue;
			const count = section.words.get(word) || 0;
			const norm = 1.2 * (0.4 + (0.6 * section.length) / mean);
			const here = (count * 2.2) / (count + norm) + (section.heading.has(word) ? 3 : 0) + (section.title.has(word) ? 1 : 0);
			score += share * rarity(word) * here;
			met += here > 0;
		}
		const kind = section.entry.history ? 0.4 : section.entry.heading.endsWith("?") ? 1.4 : 1;
		if (met) scored.push([score * (met / wanted.length) ** 2 * kind, section.entry]);
	}
	scored.sort((one, other) => other[0] - one[0]);
	return scored.map(([, entry]) => entry);
}

function show(place, entries, text) {
	const items = entries.slice(0, MOST_SHOWN).map((entry) => {
		const item = document.createElement("li");
		const link = document.createElement("a");
		link.href = place.dataset.up + entry.at;
		link.textContent = entry.heading;
		const where = document.createElement("small");
		where.textContent = entry.heading === entry.title ? "" : ` ${entry.title}`;
		const says = document.createElement("p");
		says.textContent = entry.text;
		item.append(link, where, says);
		return item;
	});
	const list = document.createElement("ol");
	list.append(...items);
	const none = document.createElement("p");
	none.textContent = text && !items.length ? "No page has these words." : "";
	place.replaceChildren(...(items.length ? [list] : [none]));
	place.hidden = !text;
}

function begin() {
	const prepared = prepare(globalThis.searchIndex);
	const place = document.getElementById("found");
	const form = document.querySelector("form");
	const search = () => {
		const text = form.q.value.trim();
		show(place, text ? rank(prepared, text) : [], text);
	};
	form.addEventListener("input", search);
	form.addEventListener("submit", (event) => {
		event.preventDefault();
		place.querySelector("a")?.click();
	});
	document.addEventListener("keydown", (event) => {
		if (event.key === "/" && document.activeElement !== form.q) {
			event.preventDefault();
			form.q.focus();
		}
		if (event.key === "Escape") {
			form.q.value = "";
			search();
		}
	});
	// A link may bring its words along: /docs/?q=bedrock
	form.q.value = new URLSearchParams(location.search).get("q") || "";
	search();
}

if (typeof document !== "undefined") begin();
