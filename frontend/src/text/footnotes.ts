/** The numbers of a text's footnotes, and the way from a mark to its note and back. */

import type { Token } from "marked";
import { escape } from "./grammar";

interface Found {
  marks: string[];
  notes: string[];
}

const nothing: Found = { marks: [], notes: [] };
const known = new WeakMap<Token, Found>();

function namesIn(token: Token): Found {
  if (!token.raw.includes("[^")) return nothing;
  let found = known.get(token);
  if (!found) known.set(token, (found = gather(token, { marks: [], notes: [] })));
  return found;
}

function gather(token: unknown, into: Found): Found {
  if (Array.isArray(token)) for (const one of token) gather(one, into);
  else if (token && typeof token === "object") {
    const { type, name, text } = token as { type?: string; name?: string; text?: string };
    if (type === "footnoteMark") into.marks.push(String(text));
    else if (type === "footnote") into.notes.push(String(name));
    // A list has items, a table rows of cells; all of them have tokens.
    for (const key of ["tokens", "items", "header", "rows"]) gather((token as Record<string, unknown>)[key], into);
  }
  return into;
}

/**
 * One line for each footnote: its number, whether its note is there, its name. A string, so that a text that grows
 * draws its finished blocks anew only when this changes. A number stays; a name gets the next one that is free.
 */
export function footnotesOf(tokens: readonly Token[]): string {
  const all = tokens.map(namesIn);
  const notes = new Set(all.flatMap((one) => one.notes));
  const names = new Set([...all.flatMap((one) => one.marks), ...notes]);
  let next = 1;
  const lines: string[] = [];
  for (const name of names) {
    let number = name;
    if (!/^\d+$/.test(name)) {
      while (names.has(String(next))) next += 1;
      number = String(next++);
    }
    lines.push(`${number} ${notes.has(name) ? "+" : "-"} ${name}`);
  }
  return lines.join("\n");
}

const mark = /<sup class="fn">([^<]*)<\/sup>/g;
const note = /<p class="fn"><sup>([^<]*)<\/sup>/g;

/** The cleaned HTML with numbers for names. Each leads to its other end, if there is one. */
export function withFootnotes(html: string, footnotes: string): string {
  if (!footnotes || !html.includes('class="fn"')) return html;
  const byName = new Map(
    footnotes.split("\n").map((line) => {
      const [number = "", there = "", name = ""] = line.split(" ");
      return [escape(name), { number: escape(number), isThere: there === "+" }] as const;
    }),
  );
  const button = (what: string, name: string, number: string) => `<button type="button" ${what}="${name}">${number}</button>`;
  return html
    .replace(note, (whole, name: string) => {
      const known = byName.get(name);
      return known ? `<p class="fn"><sup>${button("data-noted", name, known.number)}</sup>` : whole;
    })
    .replace(mark, (whole, name: string) => {
      const known = byName.get(name);
      if (!known) return whole;
      return `<sup class="fn">${known.isThere ? button("data-note", name, known.number) : known.number}</sup>`;
    });
}
