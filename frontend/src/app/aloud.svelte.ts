import { getContext, setContext } from "svelte";
import { aloudWords } from "../aloud-words";

const pieceChars = 220;
const key = Symbol("aloud");

export function provideAloud(aloud: Aloud): Aloud {
  return setContext(key, aloud);
}

export function useAloud(): Aloud {
  return getContext<Aloud>(key);
}

/** Reads an answer with the browser's own voices. One at a time. */
export class Aloud {
  /** The turn that is being read. */
  turn = $state<string | null>(null);

  get isPossible(): boolean {
    return typeof speechSynthesis === "object" && typeof SpeechSynthesisUtterance === "function";
  }

  toggle(turn: string, markdown: string): void {
    const isStop = this.turn === turn;
    this.stop();
    if (isStop) return;
    const pieces = spoken(markdown);
    if (!pieces.length) return;
    this.turn = turn;
    // In pieces: some voices fall silent in a text of more than a few hundred characters.
    pieces.forEach((text, index) => {
      const utterance = new SpeechSynthesisUtterance(text);
      const over = () => {
        if (this.turn === turn) this.turn = null;
      };
      if (index === pieces.length - 1) utterance.onend = over;
      utterance.onerror = over;
      speechSynthesis.speak(utterance);
    });
  }

  stop(): void {
    if (this.turn === null) return;
    this.turn = null;
    speechSynthesis.cancel();
  }
}

/** The words of a Markdown text, without its marks, in pieces of whole sentences. */
export function spoken(markdown: string): string[] {
  const plain = markdown
    .replace(/^(```|~~~)[^\n]*\n[\s\S]*?(?:^\1[^\n]*$|$(?![\s\S]))/gm, `${aloudWords.codeLeftOut}\n`)
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/^\s*(?:#{1,6}|>|[-*+]|\|)\s?/gm, "")
    .replace(/[*_`~|]+/g, "")
    .replace(/https?:\/\/([\w.-]+)\S*/g, "$1");
  const out: string[] = [];
  for (const line of plain.split(/\n+/)) {
    let piece = "";
    for (const sentence of line.split(/(?<=[.!?:;])\s+/)) {
      if (piece && piece.length + sentence.length > pieceChars) {
        out.push(piece);
        piece = "";
      }
      piece = piece ? `${piece} ${sentence}` : sentence;
    }
    if (/[\p{L}\p{N}]/u.test(piece)) out.push(piece.trim());
  }
  return out;
}
