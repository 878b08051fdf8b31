/** Imports exported sessions: a JSON document, an archive with the files, or the export of another system. */

import type { ImportedHistory, Session } from "../api/types";
import type { Page } from "../app/page.svelte";
import { words } from "../words";

const importTimeoutMs = 600_000;
const headBytes = 300; // in which a file says whose export it is

export function isExport(name: string): boolean {
  return /\.(zip|json)$/i.test(name);
}

/** Import the files, one after the other, and open the last session. */
export function importSessions(page: Page, files: Iterable<File>): Promise<void> {
  return page.attempt(async () => {
    for (const file of files) {
      if (await isOurs(file)) put(page, await send(page, file));
      else await importHistory(page, file);
    }
  });
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

/** Let the user pick the files of sessions. */
export function pickSessions(page: Page): void {
  const field = document.createElement("input");
  field.type = "file";
  field.accept = ".zip,.json";
  field.multiple = true;
  field.onchange = () => void importSessions(page, [...(field.files ?? [])]);
  field.click();
}
