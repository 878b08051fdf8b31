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

/** An excerpt that begins at most 24 characters before its first hit, with a whole word. */
export function excerpt(text: string, marks: [number, number][]): Piece[] {
  const first = Math.min(...marks.map(([start]) => start), text.length);
  let from = marks.length && first > leadMax ? first - leadMax : 0;
  const gap = from ? text.slice(from - 1, first).search(/\s/) : -1;
  if (gap >= 0) from += gap;
  const moved = marks.map(([start, end]): [number, number] => [start - from + (from ? 1 : 0), end - from + (from ? 1 : 0)]);
  return cutAt(`${from ? "…" : ""}${text.slice(from)}`.replace(/\n/g, " "), moved);
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
