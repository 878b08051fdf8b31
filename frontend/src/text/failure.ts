/** Why an answer failed, in words for the reader. */

import type { Failure } from "../api/types";
import { words } from "../words";

/** The provider's status and its own words, in what the server says of a refused call. */
const refused = /^\S+ answered (\d{3})(?:: ([\s\S]*))?$/;

export function failureText(failure: Failure | null): { head: string; text: string } {
  const message = failure?.message ?? "";
  const found = failure?.code.startsWith("model_") ? refused.exec(message) : null;
  if (found) return { head: words.modelError(found[1]!), text: sentences(found[2] ?? "", failure?.hint) };
  if (failure?.code === "model_silent") return { head: words.modelSilent, text: sentences(failure.hint) };
  return { head: words.failedTurn, text: sentences(message, failure?.hint) };
}

/** One text of several, each with a full stop. */
function sentences(...texts: (string | null | undefined)[]): string {
  const said = texts.flatMap((text) => text?.trim() || []);
  return [...said, words.messageIsSaved].map((text) => (/[.!?…]$/.test(text) ? text : `${text}.`)).join(" ");
}
