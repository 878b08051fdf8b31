/** Marked pieces of found text. */

export interface Piece {
  text: string;
  isMarked: boolean;
}

const leadMax = 24;

/** Every word of the query is somewhere in the text. */
export function matches(text: string, query: string): boolean {
  const plain = text.toLowerCase();
  return query.toLowerCase().split(/\s+/).filter(Boolean).every((word) => plain.includes(word));
}

export function pieces(text: string, query: string): Piece[] {
  const marks: [number, number][] = [];
  const plain = text.toLowerCase();
  for (const word of query.toLowerCase().split(/\s+/).filter(Boolean)) {
    const at = plain.indexOf(word);
    if (at >= 0) marks.push([at, at + word.length]);
  }
  return cutAt(text, marks);
}

// Marks of Markdown that are nothing to read: fences, table rules, headings, emphasis, links, cells. An excerpt
// comes on one line, so " - " may begin an item or stand between two words: it stays.
const syntax = new RegExp(
  [
    "(?:```|~~~)\\w*",
    "(?<![^\\s|])(?::?-{3,}:?|:-+:?|-+:)(?![^\\s|])",
    "(?<!\\S)#{1,6}(?=\\s)",
    "^\\s*(?:>|[-*+](?=\\s))",
    "\\*\\*|~~|`+|(?<![\\w*])\\*(?=[^\\s*])|(?<=[^\\s*])\\*(?![\\w*])",
    "!?\\[(?=[^\\]]*\\]\\([^)\\s]*\\))|\\]\\([^)\\s]*\\)",
    "(?<!\\S)\\|(?!\\S)|(?<!\\S)\\|(?=:?-)|(?<=-:?)\\|(?!\\S)|(?<=-:?)\\|(?=:?-)",
    "\\s+",
  ].join("|"),
  "g",
);

/** The text as it reads once it is drawn, on one line. A mark stays on its words. */
export function readable(text: string, marks: [number, number][]): { text: string; marks: [number, number][] } {
  const places = new Array<number>(text.length + 1);
  let out = "";
  let at = 0;
  const take = (end: number, shown?: string): void => {
    for (; at < end; at += 1) {
      places[at] = out.length;
      if (shown === undefined) out += text[at];
    }
    if (shown && out && !out.endsWith(" ")) out += shown;
  };
  for (const found of text.matchAll(syntax)) {
    const end = found.index + found[0].length;
    // What was looked for is shown as it was found.
    if (marks.some(([from, to]) => from < end && found.index < to)) continue;
    take(found.index);
    take(end, /^[\s|]/.test(found[0]) ? " " : "");
  }
  take(text.length);
  places[at] = out.length;
  return { text: out.trimEnd(), marks: marks.map(([from, to]) => [places[from]!, places[to]!]) };
}

/** An excerpt that begins at most 24 characters before its first hit, with a whole word. */
export function excerpt(found: string, hits: [number, number][]): Piece[] {
  const { text, marks } = readable(found, hits);
  const first = Math.min(...marks.map(([start]) => start), text.length);
  let from = marks.length && first > leadMax ? first - leadMax : 0;
  const gap = from ? text.slice(from - 1, first).search(/\s/) : -1;
  if (gap >= 0) from += gap;
  const moved = marks.map(([start, end]): [number, number] => [start - from + (from ? 1 : 0), end - from + (from ? 1 : 0)]);
  return cutAt(`${from ? "…" : ""}${text.slice(from)}`, moved);
}

function cutAt(text: string, marks: [number, number][]): Piece[] {
  const out: Piece[] = [];
  let at = 0;
  for (const [start, end] of [...marks].sort((left, right) => left[0] - right[0])) {
    if (start < at || end <= start) continue;
    if (start > at) out.push({ text: text.slice(at, start), isMarked: false });
    out.push({ text: text.slice(start, end), isMarked: true });
    at = end;
  }
  if (at < text.length) out.push({ text: text.slice(at), isMarked: false });
  return out;
}
