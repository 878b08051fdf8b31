/** Cuts growing Markdown into blocks. Finished blocks never change again; only the last one is open. */

import { type Token } from "marked";
import { lexer } from "./grammar";

export interface Block {
  /** Where the block begins: with its text, what makes it the same block later. */
  start: number;
  raw: string;
  token: Token;
}

export interface Cut {
  /** How much of the text the frozen blocks cover. */
  frozenUpTo: number;
  frozen: Block[];
  /** The blocks after them; the last may still grow. */
  open: Block[];
  text: string;
}

export const noCut: Cut = { frozenUpTo: 0, frozen: [], open: [], text: "" };

/** Cut the text, going on from an earlier cut of its beginning. */
export function cut(text: string, before: Cut = noCut, isFinished = false): Cut {
  const goesOn = text.startsWith(before.text) || text.slice(0, before.frozenUpTo) === before.text.slice(0, before.frozenUpTo);
  const base = goesOn ? before : noCut;
  if (base.text === text && !isFinished) return base;
  let at = base.frozenUpTo;
  const blocks: Block[] = [];
  for (const token of lexer(text.slice(at))) {
    if (token.type !== "space") blocks.push({ start: at, raw: token.raw, token });
    at += token.raw.length;
  }
  const keep = isFinished ? 0 : 1;
  const done = blocks.slice(0, Math.max(0, blocks.length - keep));
  const open = blocks.slice(done.length);
  if (isFinished) return { frozenUpTo: text.length, frozen: [...base.frozen, ...done], open: [], text };
  return {
    frozenUpTo: open[0]?.start ?? base.frozenUpTo,
    frozen: done.length ? [...base.frozen, ...done] : base.frozen,
    open,
    text,
  };
}

/** A reference like `[1]: https://…` reaches back to earlier blocks: such a text is cut anew at its end. */
export function hasReferences(text: string): boolean {
  return /^ {0,3}\[[^\]\n]+\]:\s*\S/m.test(text);
}
