import type { Page } from "../app/page.svelte";
import type { Session } from "../api/types";
import { titleOf } from "../state/list";
import { words } from "../words";
import { undo } from "./commands";
import type { MenuItem } from "./Menu.svelte";

/** What can be done with a session, for its row and for the bar. */
export function sessionItems(page: Page, session: Session): MenuItem[] {
  const isOpen = page.session?.id === session.id;
  const opened = isOpen ? page.opened : null;
  const items: MenuItem[] = [];
  if (opened) {
    const busy = opened.isBusy;
    items.push(
      { label: words.undo, icon: "undo-2", isOff: busy || !opened.last, run: () => void page.attempt(() => undo(page)) },
      { label: words.redo, icon: "redo-2", isOff: busy || !session.redo_to, run: () => void page.attempt(() => page.moves.redo(opened, session.redo_to)) },
      { label: words.compact, icon: "layers", isOff: !opened.last, run: () => void page.attempt(() => opened.compact()) },
      { label: words.copyConversation, icon: "copy", run: () => void page.attempt(() => page.copyConversation()) },
      { label: words.print, icon: "printer", isOff: !opened.last, run: () => print() },
      { isLine: true },
    );
  }
  items.push(
    { label: words.rename, icon: "pencil", run: () => rename(page, session, isOpen) },
    { label: session.pinned ? words.unpin : words.pin, icon: session.pinned ? "pin-off" : "pin", run: () => void page.sessions.change(session, { pinned: !session.pinned }) },
    { label: words.tagsMenu, icon: "tag", run: () => retag(page, session, isOpen) },
    { label: session.archived ? words.unarchive : words.archive, icon: "archive", run: () => void page.archive(session, !session.archived) },
    { label: session.private ? words.makeRemembered : words.makePrivate, icon: "lock", run: () => void page.sessions.change(session, { private: !session.private }) },
    { label: words.changeFolder, icon: "folder", isOff: !!session.active_turn, run: () => page.chooseFolder(session) },
    { label: words.duplicate, icon: "git-branch", run: () => void page.attempt(() => page.duplicate(session)) },
    { isLine: true },
    { label: words.exportMarkdown, icon: "download", run: () => download(page, session, "md") },
    { label: words.exportHtml, icon: "download", run: () => download(page, session, "html") },
    { label: words.exportArchive, icon: "download", run: () => download(page, session, "archive", "zip") },
    { label: words.exportJson, icon: "download", run: () => download(page, session, "json") },
    { isLine: true },
    { label: words.delete, icon: "trash-2", isDanger: true, run: () => void page.remove(session) },
  );
  return items;
}

/** The conversation draws all of itself first: the browser alone would print what is in view. */
export function print(): void {
  document.dispatchEvent(new CustomEvent("everturn:print"));
}

function rename(page: Page, session: Session, isOpen: boolean): void {
  if (!isOpen) page.go({ at: "session", id: session.id });
  // The bar holds the field; it may have to be drawn first.
  setTimeout(() => document.dispatchEvent(new CustomEvent("everturn:rename")), isOpen ? 0 : 60);
}

function retag(page: Page, session: Session, isOpen: boolean): void {
  if (!isOpen) page.go({ at: "session", id: session.id });
  setTimeout(() => document.dispatchEvent(new CustomEvent("everturn:tags")), isOpen ? 0 : 60);
}

function download(page: Page, session: Session, format: string, ending = format): void {
  const link = document.createElement("a");
  link.href = page.api.address(`api/sessions/${session.id}/export`, { format });
  link.download = `${(titleOf(session) || session.id).replace(/[^\w -]+/g, "").trim() || session.id}.${ending}`;
  document.body.append(link);
  link.click();
  link.remove();
}
