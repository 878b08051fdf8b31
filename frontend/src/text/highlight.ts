/** Colours for code, fetched only when there is code to colour. */

import type { HLJSApi } from "highlight.js";

let loading: Promise<HLJSApi> | null = null;

/** HTML of the code, or null where the language is not known. The text is escaped by the highlighter. */
export async function highlight(code: string, lang: string): Promise<string | null> {
  // Beyond this a highlighter costs more than it shows.
  if (code.length > 40_000 || !lang) return null;
  loading ??= import("./languages").then((module) => module.hljs);
  const hljs = await loading;
  if (!hljs.getLanguage(lang)) return null;
  return hljs.highlight(code, { language: lang, ignoreIllegals: true }).value;
}
