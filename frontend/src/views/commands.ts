/** Everything that can be done by name: in the palette, after a slash, and by key. */

import type { Page } from "../app/page.svelte";
import { words } from "../words";
import type { IconName } from "./icons";
import { pickSessions } from "./import-session";

export interface Command {
  id: string;
  label: string;
  icon: IconName;
  keys?: string[];
  slash?: string;
  run: (rest: string) => unknown;
}

export const isApple = /Mac|iPhone|iPad/.test(navigator.platform);
export const mod = isApple ? "⌘" : "Ctrl";
export const shift = isApple ? "⇧" : "Shift";

export function commandsFor(page: Page): Command[] {
  const opened = page.opened;
  const session = page.session;
  const list: Command[] = [
    { id: "new", label: words.commandNew, icon: "square-pen", keys: [mod, shift, "O"], slash: "new", run: (rest) => page.newSession(rest) },
  ];
  if (opened) {
    const last = opened.last;
    if (opened.isBusy) list.push({ id: "stop", label: words.commandStop, icon: "square", keys: ["Esc"], slash: "stop", run: () => page.stop() });
    if (last && !opened.isBusy) {
      list.push({ id: "retry", label: words.commandRetry, icon: "rotate-cw", slash: "retry", run: () => page.attempt(() => page.moves.retry(opened, last)) });
      list.push({ id: "undo", label: words.commandUndo, icon: "undo-2", keys: [mod, "Z"], slash: "undo", run: () => page.attempt(() => undo(page)) });
    }
    if (session?.redo_to) list.push({ id: "redo", label: words.commandRedo, icon: "redo-2", slash: "redo", run: () => page.attempt(() => page.moves.redo(opened, page.session?.redo_to)) });
    list.push(
      { id: "branch", label: words.branchHere, icon: "git-branch", slash: "branch", run: () => page.attempt(async () => page.go({ at: "session", id: (await opened.branch(null)).id })) },
      { id: "compact", label: words.compact, icon: "layers", slash: "compact", run: (rest) => page.attempt(() => opened.compact(rest)) },
      { id: "clear", label: words.clear, icon: "x", slash: "clear", run: () => page.attempt(() => opened.clear()) },
      { id: "copy", label: words.commandCopy, icon: "copy", slash: "copy", run: () => page.attempt(() => page.copyConversation()) },
    );
    if (session) {
      if (!opened.isBusy) list.push({ id: "folder", label: words.chooseFolder, icon: "folder", slash: "folder", run: () => page.chooseFolder(session) });
      list.push(
        { id: "rename", label: words.rename, icon: "pencil", slash: "rename", run: (rest) => (rest ? page.sessions.change(session, { title: rest }) : document.dispatchEvent(new CustomEvent("everturn:rename"))) },
        { id: "pin", label: session.pinned ? words.unpin : words.pin, icon: session.pinned ? "pin-off" : "pin", slash: "pin", run: () => page.sessions.change(session, { pinned: !session.pinned }) },
        { id: "archive", label: session.archived ? words.unarchive : words.archive, icon: "archive", slash: "archive", run: () => page.sessions.change(session, { archived: !session.archived }) },
        { id: "delete", label: words.delete, icon: "trash-2", slash: "delete", run: () => page.remove(session) },
      );
    }
  }
  list.push(
    { id: "next", label: words.commandNextAsk, icon: "circle-help", keys: ["G", "I"], run: () => page.nextAsk() },
    { id: "needs", label: words.needsYou, icon: "inbox", run: () => page.go({ at: "needs" }) },
    { id: "schedules", label: words.schedules, icon: "calendar-clock", slash: "schedules", run: () => page.go({ at: "schedules", id: null }) },
    { id: "side", label: words.commandSidebar, icon: "panel-left", keys: [mod, "B"], run: () => page.prefs.toggleSide() },
    { id: "panel", label: words.commandPanel, icon: "panel-right", keys: [mod, "."], slash: "timeline", run: () => page.prefs.setPanel(!page.prefs.isPanelOpen) },
    ...(opened ? [{ id: "files", label: words.commandFiles, icon: "folder" as const, slash: "files", run: () => page.prefs.setPanel(true, "files") }] : []),
    { id: "jobs", label: words.commandJobs, icon: "activity", slash: "jobs", run: () => page.go({ at: "jobs" }) },
    { id: "budget", label: words.commandBudgets, icon: "wallet", slash: "budget", run: () => page.go({ at: "settings", section: "budgets" }) },
    { id: "light", label: words.commandTheme(words.themeLight), icon: "sun", run: () => page.prefs.setTheme("light") },
    { id: "dark", label: words.commandTheme(words.themeDark), icon: "moon", run: () => page.prefs.setTheme("dark") },
    { id: "system", label: words.commandTheme(words.themeSystem), icon: "palette", run: () => page.prefs.setTheme("system") },
    { id: "import", label: words.commandImport, icon: "file-up", slash: "import", run: () => pickSessions(page) },
    { id: "settings", label: words.commandSettings, icon: "settings", slash: "settings", run: () => page.go({ at: "settings", section: "models" }) },
    { id: "memory", label: words.sectionMemory, icon: "brain", slash: "memory", run: () => page.go({ at: "settings", section: "memory" }) },
    { id: "keys", label: words.commandMap, icon: "command", keys: ["?"], slash: "help", run: () => (page.overlay = "keys") },
  );
  return list;
}

export async function undo(page: Page): Promise<void> {
  const opened = page.opened;
  if (!opened) return;
  const undone = opened.last?.id;
  if (!(await page.moves.undo(opened))) return;
  // The server may answer before the page has drawn the shorter conversation: only what changes after that ends the note.
  let before: string | undefined;
  page.toasts.show(words.undone, {
    label: words.redo,
    run: () => void page.attempt(() => page.moves.redo(opened, page.session?.redo_to)),
    isOver: () => {
      const last = opened.last?.id ?? "";
      if (before === undefined && last !== undone) before = last;
      return page.opened !== opened || (before !== undefined && last !== before);
    },
  });
}
