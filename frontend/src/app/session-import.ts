/** Sends exported sessions to the server: loaded when there are some. */

import type { ImportedHistory, Session } from "../api/types";
import { words } from "../words";
import type { Page } from "./page.svelte";

const importTimeoutMs = 600_000;
const headBytes = 300; // in which a file says whose export it is

/** Import one file, and open its session or the report. */
export async function importFile(page: Page, file: File): Promise<void> {
  if (await isOurs(file)) put(page, await send(page, file));
  else await importHistory(page, file);
}

function put(page: Page, session: Session): void {
  page.sessions.put(session);
  page.toasts.show(words.imported(page.titleOf(session)));
  page.go({ at: "session", id: session.id });
}

/** Whether this server's kind made the file; what it begins with says so. */
async function isOurs(file: File): Promise<boolean> {
  const head = await file.slice(0, headBytes).text();
  return /"format":\s*"everturn\.session"/.test(head) || head.slice(30).startsWith("session.json");
}

function send(page: Page, file: File): Promise<Session> {
  if (/\.json$/i.test(file.name)) return page.api.post("api/sessions/import", { body: new Blob([file], { type: "application/json" }), timeoutMs: importTimeoutMs });
  return page.api.post("api/sessions/import/archive", { body: formOf(file), timeoutMs: importTimeoutMs });
}

/** Conversations of another system; the report says what became of each. */
async function importHistory(page: Page, file: File): Promise<void> {
  const sending = page.api.post<ImportedHistory>("api/sessions/import/history", { body: formOf(file), timeoutMs: importTimeoutMs });
  page.imported = await page.toasts.during(words.importing(file.name), sending);
  page.overlay = "imported";
}

function formOf(file: File): FormData {
  const form = new FormData();
  form.append("file", file, file.name);
  return form;
}
