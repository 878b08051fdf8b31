import { explain } from "../api/client";
import type { Session } from "../api/types";
import { pickedWords } from "../picked-words";
import { words } from "../words";
import type { Page } from "./page.svelte";

/** What is done with the sessions that are selected. */
export class Picked {
  constructor(private readonly page: Page) {}

  get rows(): Session[] {
    return [...this.page.picking.ids].flatMap((id) => this.page.sessions.find(id) ?? []);
  }

  archive(isArchived: boolean): Promise<void> {
    const rows = this.rows.filter((row) => !!row.archived !== isArchived);
    const change = (to: boolean) => (row: Session) => this.patch(row, { archived: to });
    return this.act(rows, change(isArchived), isArchived ? pickedWords.archivedMany : pickedWords.unarchivedMany, change(!isArchived));
  }

  tag(tag: string): Promise<void> {
    const rows = this.rows.filter((row) => !(row.tags ?? []).includes(tag));
    const add = (row: Session) => this.patch(row, { tags: [...(row.tags ?? []), tag] });
    return this.act(rows, add, (count) => pickedWords.taggedMany(count, tag), (row) => this.patch(row, { tags: row.tags ?? [] }));
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
    await this.act(rows, remove, pickedWords.deletedMany, back);
  }

  exportAs(form: string): void {
    const link = document.createElement("a");
    link.href = this.page.api.address("api/export", { sessions: [...this.page.picking.ids].join(","), format: form });
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
    if (failed.length) toasts.show(pickedWords.notAll(failed.length, why));
    if (done.length) {
      const undo = async () => {
        const undone = await each(done, back);
        if (undone.failed.length) toasts.show(pickedWords.notAll(undone.failed.length, undone.why));
      };
      toasts.show(said(done.length), { label: words.undoNow, run: () => void undo() });
    }
    if (failed.length) this.page.picking.ids = new Set(failed.map((row) => row.id));
    else this.page.picking.end();
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
