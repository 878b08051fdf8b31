/** What a point in a session's history is called: a turn by its number, where that is known. */

import type { At } from "../../api/files";
import type { OpenSession } from "../../app/open-session.svelte";
import { words } from "../../words";

/** Null: the turn is not on the path, or earlier turns were not read. */
export function turnNumber(opened: OpenSession, turnId: string | null | undefined): number | null {
  const { conversation } = opened;
  if (!turnId || !conversation || conversation.before) return null;
  const index = conversation.turns.findIndex((turn) => turn.id === turnId);
  return index < 0 ? null : index + 1;
}

export function pointLabel(opened: OpenSession, at: At): string {
  if (at === "now") return words.atNow;
  if (at === "start") return words.atStart;
  const number = turnNumber(opened, at.replace(/^before:/, ""));
  if (number === null) return words.turn;
  if (!at.startsWith("before:")) return words.turnNumber(number);
  return number > 1 ? words.turnNumber(number - 1) : words.atStart;
}
