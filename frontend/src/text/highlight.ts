/** Colours for code, made in a worker that starts with the first code: no page waits for a grammar. */

import Colouring from "./colouring?worker";

/** What is asked of the worker, and what it answers: null where the language is not known. */
export interface ToColour {
  id: number;
  code: string;
  lang: string;
}
export interface Coloured {
  id: number;
  html: string | null;
}

const asked = new Map<number, (html: string | null) => void>();
let count = 0;
let worker: Worker | null = null;

/** HTML of the code, or null where it stays as it is. The text is escaped by the highlighter. */
export function highlight(code: string, lang: string): Promise<string | null> {
  // Beyond this colours cost more than they show.
  if (code.length > 40_000 || !lang) return Promise.resolve(null);
  worker ??= startWorker();
  const id = (count += 1);
  return new Promise((resolve) => {
    asked.set(id, resolve);
    worker!.postMessage({ id, code, lang } satisfies ToColour);
  });
}

function startWorker(): Worker {
  const made = new Colouring();
  made.onmessage = (event: MessageEvent<Coloured>) => settle(event.data);
  // Where it cannot start or breaks, code is black on white, which can be read.
  made.onerror = () => [...asked.keys()].forEach((id) => settle({ id, html: null }));
  return made;
}

function settle({ id, html }: Coloured): void {
  asked.get(id)?.(html);
  asked.delete(id);
}
