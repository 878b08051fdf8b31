/** Shows files of a turn in the panel. */

import type { At } from "../../api/files";
import type { OpenSession } from "../../app/open-session.svelte";
import { filesOf } from "../../app/session-files.svelte";
import type { Page } from "../../app/page.svelte";
import type { TurnView } from "../../state/items";
import type { FilePlace } from "../../text/file-links";

/** The files as a turn left them; those of the last turn are the present ones, which can be edited. */
export function atOf(opened: OpenSession, turn: TurnView): At {
  return turn === opened.last ? "now" : `made:${turn.id}`;
}

export function openFile(page: Page, opened: OpenSession, turn: TurnView, path: string, at: At = atOf(opened, turn)): void {
  page.shownTurn = turn.id;
  filesOf(opened).reveal(path, at);
  page.prefs.setPanel(true, "files");
}

/** The tree with what the turn changed. */
export function openChanges(page: Page, opened: OpenSession, turn: TurnView): void {
  page.shownTurn = turn.id;
  filesOf(opened).compared = null;
  filesOf(opened).show = "turn";
  page.prefs.setPanel(true, "files");
}

/** What the turn did to the files, with the differences. */
export function openCompare(page: Page, opened: OpenSession, turn: TurnView): void {
  page.shownTurn = turn.id;
  filesOf(opened).compared = { from: `before:${turn.id}`, to: `made:${turn.id}` };
  page.prefs.setPanel(true, "files");
}

/** Where the files are that an answer names. It takes the turn by its id: the turn changes with every token. */
export function placeOf(page: Page, opened: OpenSession, turnId: string, hasEnded: boolean): FilePlace {
  return {
    folder: "",
    address: (path, isPresent) => filesOf(opened).api.address(path, isPresent || !hasEnded ? "now" : turnId, true),
    open: (path) => {
      const turn = opened.conversation?.turns.find((known) => known.id === turnId);
      if (turn) openFile(page, opened, turn, path);
    },
  };
}
