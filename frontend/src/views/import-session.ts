/** Imports exported sessions: a JSON document, an archive with the files, or the export of another system. */

import type { Page } from "../app/page.svelte";

export function isExport(name: string): boolean {
  return /\.(zip|json)$/i.test(name);
}

/** Import the files, one after the other, and open the last session. */
export function importSessions(page: Page, files: Iterable<File>): Promise<void> {
  return page.attempt(async () => {
    const { importFile } = await import("../app/session-import");
    for (const file of files) await importFile(page, file);
  });
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
