// Before the first call: how a client gets here, and what can be watched without one.

import { dim, h, p, panel } from "./dom.js";
import { state } from "./feed.js";

const has = (part) => Object.keys(part).length > 0;
export const isEmpty = () => state.live && !state.agents.size && !has(state.lanes) && !has(state.runs) && !has(state.resources);

const command = (words, what) => h("li", { key: words }, h("code", words), h("button.order", { "aria-label": `copy ${words}`, onclick: (event) => copy(event.currentTarget, words) }, "copy"), h("span.dim", what));

async function copy(button, words) {
	await navigator.clipboard.writeText(words).then(() => { button.textContent = "copied"; }, () => { button.textContent = "select it, and copy"; });
}

export function start() {
	return isEmpty() && panel("Begin", "status", null,
		p("No client has called yet. The first call through this gateway opens its lane, and everything appears here."),
		h("h3", "Connect a client"),
		h("ul.commands",
			command("jackline claude", "Claude Code, through this gateway"),
			command("jackline exec -- python my_agents.py", "any program that calls models"),
			command('eval "$(jackline env)"', "everything that is started in this shell"),
			command("jackline connect claude-code", "Claude Code's own settings, with its editor extension"),
			command(`ANTHROPIC_BASE_URL=${location.origin}`, "by hand: the address for a client")),
		h("h3", "Or watch first"),
		h("ul.commands",
			command("jackline drill throttle-storm --watch", "a rehearsal with simulated agents: no key, no network, no cost"),
			command("jackline run FLOW.py", "a flow of agents of your own")),
		dim("A drill has a gateway and a page of its own; it prints the address."));
}
