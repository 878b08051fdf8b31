/** Text that the user approves or trusts: characters that would hide or move a part of it are made visible. */

import { exactWords } from "../exact-words";
import type { Piece } from "./hits";

const blankLinesMin = 4;
const spacesMin = 60;

// Categories without a mark on the screen: control, format, unassigned, and separators other than the plain
// space; then fillers and variation selectors that count as letters or marks.
const hidden = /[\p{C}\p{Zl}\p{Zp}\p{Zs}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u{e0100}-\u{e01ef}]/u;
const gap = new RegExp(`(?<=^|\\n)(?:[ \\t]*\\n){${blankLinesMin},}|[ \\t]{${spacesMin},}|${hidden.source}`, "gu");

/** The text in pieces. The marked ones stand for what would not be seen: `\u202e`, `[118 blank lines]`. */
export function exact(text: string): Piece[] {
  const out: Piece[] = [];
  let at = 0;
  for (const found of text.matchAll(gap)) {
    const shown = mark(found[0]);
    if (shown === null) continue;
    if (found.index > at) out.push({ text: text.slice(at, found.index), isMarked: false });
    out.push({ text: shown, isMarked: true });
    at = found.index + found[0].length;
    // The last of the blank lines still ends here.
    if (found[0].endsWith("\n")) at -= 1;
  }
  if (at < text.length) out.push({ text: text.slice(at), isMarked: false });
  return out;
}

/** The same in one string, for a line that cannot carry marks. */
export function visible(text: string): string {
  return exact(text)
    .map((piece) => piece.text)
    .join("");
}

function mark(found: string): string | null {
  if (found === " " || found === "\n" || found === "\t") return null;
  if (found.endsWith("\n")) return `[${exactWords.blankLines((found.match(/\n/g) ?? []).length)}]`;
  if (/^[ \t]/.test(found)) return `[${exactWords.spaces(found.length)}]`;
  const code = found.codePointAt(0)!;
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, "0")}`;
}
