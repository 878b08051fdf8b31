import type { Labels, Session } from "../api/types";
import { explain } from "../api/client";
import { findWords } from "../find-words";
import { words } from "../words";
import type { Page } from "./page.svelte";

/** Which sessions the list shows: those with a tag, or of a folder. */
export type Narrowed = { tag: string } | { project: string };

/** The list's filter, and the sessions that are selected in it. */
export class Picking {
  narrowed = $state.raw<Narrowed | null>(null);
  isOn = $state(false);
  ids = $state.raw<ReadonlySet<string>>(new Set());
  private last = "";

  constructor(private readonly page: Page) {}

  isShown(row: Session): boolean {
    const wanted = this.narrowed;
    if (!wanted) return true;
    return "tag" in wanted ? (row.tags ?? []).includes(wanted.tag) : row.project === wanted.project;
  }

  labels(): Promise<Labels> {
    return this.page.api.get<Labels>("api/labels");
  }

  /** The server finds all of them; the list may not have read that far. */
  async narrow(wanted: Narrowed | null): Promise<void> {
    this.narrowed = wanted;
    if (!wanted) return;
    let cursor: string | null | undefined;
    do {
      const query = { ...wanted, limit: 200, ...(cursor ? { cursor } : {}) };
      const found = await this.page.api.get<{ items: Session[]; cursor?: string | null }>("api/sessions", { query });
      if (this.narrowed !== wanted) return;
      this.page.sessions.put(...found.items);
      cursor = found.cursor;
    } while (cursor);
  }

  start(): void {
    this.isOn = true;
    this.ids = new Set();
  }

  end(): void {
    this.isOn = false;
    this.ids = new Set();
  }

  /** `order`: the rows as they stand in the list, for a selection from the last one to this one. */
  toggle(id: string, order: readonly string[], isRange: boolean): void {
    const next = new Set(this.ids);
    const from = order.indexOf(this.last);
    const to = order.indexOf(id);
    if (isRange && from >= 0 && to >= 0) for (const one of order.slice(Math.min(from, to), Math.max(from, to) + 1)) next.add(one);
    else if (!next.delete(id)) next.add(id);
    this.last = id;
    this.ids = next;
  }

  get rows(): Session[] {
    return [...this.ids].flatMap((id) => this.page.sessions.find(id) ?? []);
  }

  // --- what is done with them ------------------------------------------------------------------

  archive(isArchived: boolean): Promise<void> {
    const rows = this.rows.filter((row) => !!row.archived !== isArchived);
    const change = (to: boolean) => (row: Session) => this.patch(row, { archived: to });
    return this.act(rows, change(isArchived), isArchived ? findWords.archivedMany : findWords.unarchivedMany, change(!isArchived));
  }

  tag(tag: string): Promise<void> {
    const rows = this.rows.filter((row) => !(row.tags ?? []).includes(tag));
    const add = (row: Session) => this.patch(row, { tags: [...(row.tags ?? []), tag] });
    return this.act(rows, add, (count) => findWords.taggedMany(count, tag), (row) => this.patch(row, { tags: row.tags ?? [] }));
  }

  async remove(): Promise<void> {
    const { page } = this;
    const rows = this.rows;
    const remove = async (row: Session) => {
      await page.api.delete(`api/sessions/${row.id}`);
      page.sessions.hide(row.id);
      if (page.session?.id === row.id) page.go({ at: "new" });
    };
    const back = async (row: Session) => page.sessions.revive(await page.api.post<Session>(`api/sessions/${row.id}/restore`));
    await this.act(rows, remove, findWords.deletedMany, back);
  }

  exportAs(form: string): void {
    const link = document.createElement("a");
    link.href = this.page.api.address("api/export", { sessions: [...this.ids].join(","), format: form });
    link.download = "everturn-sessions.zip";
    document.body.append(link);
    link.click();
    link.remove();
  }

  private async patch(row: Session, change: Record<string, unknown>): Promise<void> {
    this.page.sessions.put(await this.page.api.patch<Session>(`api/sessions/${row.id}`, { body: change }));
  }

  /** One after the other; what could not be done is said and stays selected, the rest can be undone. */
  private async act(rows: Session[], one: (row: Session) => Promise<void>, said: (count: number) => string, back: (row: Session) => Promise<void>): Promise<void> {
    const { done, failed, why } = await each(rows, one);
    const { toasts } = this.page;
    if (failed.length) toasts.show(findWords.notAll(failed.length, why));
    if (done.length) {
      const undo = async () => {
        const undone = await each(done, back);
        if (undone.failed.length) toasts.show(findWords.notAll(undone.failed.length, undone.why));
      };
      toasts.show(said(done.length), { label: words.undoNow, run: () => void undo() });
    }
    if (failed.length) this.ids = new Set(failed.map((row) => row.id));
    else this.end();
  }
}

async function each(rows: Session[], act: (row: Session) => Promise<void>): Promise<{ done: Session[]; failed: Session[]; why: string }> {
  const done: Session[] = [];
  const failed: Session[] = [];
  let why = "";
  for (const row of rows) {
    try {
      await act(row);
      done.push(row);
    } catch (error) {
      failed.push(row);
      why = explain(error, words.serverAway);
    }
  }
  return { done, failed, why };
}
