import type { Labels, Session } from "../api/types";
import type { Page } from "../app/page.svelte";
import type { Narrowed } from "../app/picking.svelte";
import { filterWords } from "../filter-words";
import { findWords } from "../find-words";
import type { MenuItem } from "./Menu.svelte";

const shownMax = 30;

/** The tags and folders in use, to show only their sessions. */
export async function filterItems(page: Page): Promise<MenuItem[]> {
  const { tags, projects } = await page.api.get<Labels>("api/labels");
  const items: MenuItem[] = [{ label: filterWords.selectSeveral, icon: "list-checks", run: () => page.picking.start() }];
  if (page.picking.narrowed) items.push({ label: findWords.showAll, icon: "x", run: () => (page.picking.narrowed = null) });
  items.push({ isLine: true });
  if (!tags.length && !projects.length) items.push({ label: filterWords.noLabels });
  if (tags.length) items.push({ label: filterWords.tags });
  for (const { name, sessions } of tags.slice(0, shownMax)) items.push({ label: name, icon: "tag", keys: [String(sessions)], run: () => void page.attempt(() => narrow(page, { tag: name })) });
  if (projects.length) items.push({ label: filterWords.projects });
  for (const { name, sessions } of projects.slice(0, shownMax)) items.push({ label: name, icon: "folder", keys: [String(sessions)], run: () => void page.attempt(() => narrow(page, { project: name })) });
  return items;
}

/** The server finds all of them; the list may not have read that far. */
async function narrow(page: Page, wanted: Narrowed): Promise<void> {
  page.picking.narrowed = wanted;
  let cursor: string | null | undefined;
  do {
    const query = { ...wanted, limit: 200, ...(cursor ? { cursor } : {}) };
    const found = await page.api.get<{ items: Session[]; cursor?: string | null }>("api/sessions", { query });
    if (page.picking.narrowed !== wanted) return;
    page.sessions.put(...found.items);
    cursor = found.cursor;
  } while (cursor);
}
