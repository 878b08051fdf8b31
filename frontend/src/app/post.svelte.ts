import { Api } from "../api/client";
import type { Accepted, Session } from "../api/types";
import { Disk, readText, writeText } from "../keep/disk";
import { Outbox, type LocalFile, type Unsent } from "../keep/outbox";

export interface DraftFile extends LocalFile {
  preview: string | null;
}

const newKey = "new";

/** Drafts and messages on their way. What is typed survives a crash of the browser, file by file. */
export class Post {
  unsent = $state.raw<readonly Unsent[]>([]);
  readonly outbox: Outbox;

  constructor(
    api: Api,
    private readonly disk: Disk,
    onCreated: (entry: Unsent, session: Session) => void,
    onAccepted: (entry: Unsent, accepted: Accepted) => void,
  ) {
    this.outbox = new Outbox(api, disk, {
      onChange: (entries) => (this.unsent = entries),
      onCreated,
      onAccepted,
    });
  }

  of(session: string | null): Unsent[] {
    return this.unsent.filter((entry) => entry.session === session);
  }

  // --- drafts ---------------------------------------------------------------------------------

  readDraft(session: string | null): string {
    return readText(`everturn.draft.${session ?? newKey}`) ?? "";
  }

  writeDraft(session: string | null, text: string): void {
    writeText(`everturn.draft.${session ?? newKey}`, text);
  }

  readFiles(session: string | null): LocalFile[] {
    const kept = readText(`everturn.files.${session ?? newKey}`);
    return kept ? (JSON.parse(kept) as LocalFile[]) : [];
  }

  writeFiles(session: string | null, files: LocalFile[]): void {
    writeText(`everturn.files.${session ?? newKey}`, files.length ? JSON.stringify(files) : null);
  }

  async keepFile(id: string, blob: Blob): Promise<void> {
    await this.disk.put("files", { id, blob });
  }

  async dropFile(id: string): Promise<void> {
    await this.disk.delete("files", id);
  }

  async fileOf(id: string): Promise<Blob | null> {
    return (await this.disk.get<{ blob: Blob }>("files", id))?.blob ?? null;
  }
}
