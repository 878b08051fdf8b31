/** Brings exported sessions in: a JSON document, or an archive with the files. */

import type { Session } from "../api/types";
import type { Page } from "../app/page.svelte";
import { words } from "../words";

const importTimeoutMs = 600_000;

export function isExport(name: string): boolean {
  return /\.(zip|json)$/i.test(name);
}

/** Import the files, one after the other, and open the last session. */
export function importSessions(page: Page, files: Iterable<File>): Promise<void> {
  return page.attempt(async () => {
    for (const file of files) {
      const session = await send(page, file);
      page.sessions.put(session);
      page.toasts.show(words.imported(page.titleOf(session)));
      page.go({ at: "session", id: session.id });
    }
  });
}

function send(page: Page, file: File): Promise<Session> {
  if (/\.json$/i.test(file.name)) return page.api.post("api/sessions/import", { body: new Blob([file], { type: "application/json" }), timeoutMs: importTimeoutMs });
  const form = new FormData();
  form.append("file", file, file.name);
  return page.api.post("api/sessions/import/archive", { body: form, timeoutMs: importTimeoutMs });
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
