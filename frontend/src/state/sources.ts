// The web pages that an answer rests on, from what the tools of its turn showed. domain/web_sources.py has the same rule.
import { answerOf, outcomeOf, type TurnView } from "./items";

export interface WebSource {
  url: string;
  title: string;
}

const sourcesMax = 30;
const ends = new Set(" \t\r\n)>]}\"'`,;*|");

interface Display {
  kind?: string;
  url?: unknown;
  title?: unknown;
  hits?: unknown;
}

/** Pages that were fetched, and results of a search whose address the answer names. */
export function webSourcesOf(turn: TurnView): WebSource[] {
  const found = new Map<string, string>();
  const answer = answerOf(turn);
  for (const item of turn.items) {
    if (item.kind !== "call" || !item.result || outcomeOf(item.result) !== "ok") continue;
    const display = item.result.display as Display | null;
    if (display?.kind === "fetch") add(found, display);
    if (display?.kind !== "search" || !Array.isArray(display.hits)) continue;
    for (const hit of display.hits as Display[]) if (names(answer, String(hit?.url ?? ""))) add(found, hit);
  }
  return [...found].slice(0, sourcesMax).map(([url, title]) => ({ url, title }));
}

function add(found: Map<string, string>, page: Display): void {
  const url = String(page.url ?? "");
  if (/^https?:\/\//.test(url) && !found.get(url)) found.set(url, String(page.title ?? "").replace(/\s+/g, " ").trim());
}

/** Is the whole address in the answer, not only as the beginning of a longer one? */
function names(answer: string, url: string): boolean {
  for (let at = url ? answer.indexOf(url) : -1; at >= 0; at = answer.indexOf(url, at + 1)) {
    const after = answer.slice(at + url.length);
    if (!after || ends.has(after[0]!) || (".:!?".includes(after[0]!) && (after.length === 1 || ends.has(after[1]!)))) return true;
  }
  return false;
}
