/** What a point in a session's history is called: a turn by its number, where that is known. */

import type { At } from "../../api/files";
import type { OpenSession } from "../../app/open-session.svelte";
import { fileWords } from "../../file-words";
import { words } from "../../words";

/** Null: the turn is not on the path, or earlier turns were not read. */
export function turnNumber(opened: OpenSession, turnId: string | null | undefined): number | null {
  const { conversation } = opened;
  if (!turnId || !conversation || conversation.before) return null;
  const index = conversation.turns.findIndex((turn) => turn.id === turnId);
  return index < 0 ? null : index + 1;
}

export function pointLabel(opened: OpenSession, at: At): string {
  if (at === "now") return fileWords.atNow;
  if (at === "start") return fileWords.atStart;
  const number = turnNumber(opened, at.replace(/^(before|made):/, ""));
  if (number === null) return words.turn;
  if (!at.startsWith("before:")) return fileWords.turnNumber(number);
  return number > 1 ? fileWords.turnNumber(number - 1) : fileWords.atStart;
}
