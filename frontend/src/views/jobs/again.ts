import { freshKey } from "../../api/client";
import type { Job } from "../../api/types";
import type { Page } from "../../app/page.svelte";
import { workWords } from "../../work-words";

/** Ask the agent to start a lost job again: it is judged and approved like any command. */
export async function again(page: Page, job: Job): Promise<void> {
  const text = workWords.startAgainPrompt(job.command);
  await page.attempt(async () => {
    await page.post.sender.send({ session: job.session_id, leaving: null, text, files: [], model: null, profile: null, whenBusy: "queue" });
    page.toasts.show(workWords.startAgainSent);
    page.go({ at: "session", id: job.session_id });
  });
}

/** Give a person a text as a file. */
export function save(name: string, blob: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export function fileName(job: Job): string {
  const words = job.command.toLowerCase().match(/[a-z0-9]+/g) ?? ["job"];
  return `${words.slice(0, 3).join("-").slice(0, 40)}-${freshKey().slice(0, 4)}.txt`;
}
