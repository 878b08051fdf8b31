import { Api, type Problem } from "../api/client";
import type { Accepted, Session } from "../api/types";
import { Disk, readText, writeText } from "../keep/disk";
import { Sender, type LocalFile, type Unsent } from "../keep/unsent";

/** Drafts and messages on their way. What is typed survives a crash of the browser, file by file. */
export class Post {
  unsent = $state.raw<readonly Unsent[]>([]);
  /** The browser takes drafts: it has room for them and was not told otherwise. */
  isKeeping = $state(true);
  readonly sender: Sender;
  /** Keys of messages whose turns are to be stopped as soon as they have one. */
  private readonly stopped = new Set<string>();

  constructor(
    api: Api,
    private readonly disk: Disk,
    onCreated: (entry: Unsent, session: Session) => void,
    onAccepted: (entry: Unsent, accepted: Accepted) => void,
    onRefused: (problem: Problem) => void,
  ) {
    this.sender = new Sender(api, disk, {
      onChange: (entries) => {
        this.unsent = entries;
        for (const entry of entries) if (entry.state === "failed") this.stopped.delete(entry.key);
      },
      onCreated,
      onAccepted,
      onRefused,
    });
  }

  of(session: string | null): Unsent[] {
    return this.unsent.filter((entry) => entry.session === session);
  }

  /** The first message of the session that the server is being sent. */
  sendingOf(session: string | null): Unsent | undefined {
    return this.of(session).find((entry) => entry.state === "sending");
  }

  /** Stop the turn of this message once the server has made it. */
  stopOnceAccepted(entry: Unsent): void {
    this.stopped.add(entry.key);
  }

  /** Whether that was asked for. */
  takeStopped(entry: Unsent): boolean {
    return this.stopped.delete(entry.key);
  }

  // --- drafts ---------------------------------------------------------------------------------

  readDraft(session: string | null): { text: string; files: LocalFile[] } {
    const [text, files] = placesOf(session).map(readText);
    return { text: text ?? "", files: files ? (JSON.parse(files) as LocalFile[]) : [] };
  }

  writeDraft(session: string | null, text = "", files: LocalFile[] = []): void {
    const [forText, forFiles] = placesOf(session);
    this.isKeeping = writeText(forText!, text) && writeText(forFiles!, files.length ? JSON.stringify(files) : null);
  }

  /** Whether this place in the browser's storage holds the session's draft. */
  isDraftOf(session: string | null, place: string | null): boolean {
    return placesOf(session).includes(place ?? "");
  }

  async keepFile(id: string, blob: Blob): Promise<void> {
    await this.disk.put("files", id, { id, blob });
  }

  async dropFile(id: string): Promise<void> {
    await this.disk.delete("files", id);
  }

  async fileOf(id: string): Promise<Blob | null> {
    return (await this.disk.get<{ blob: Blob }>("files", id))?.blob ?? null;
  }
}

function placesOf(session: string | null): string[] {
  return ["draft", "files"].map((what) => `everturn.${what}.${session ?? "new"}`);
}

const folderPlace = "everturn.folder.new";

/** The folder chosen for the next session. It is kept like a draft: a reload must not lead the message elsewhere. */
export function readNewFolder(): string | null {
  return readText(folderPlace);
}

export function writeNewFolder(path: string | null): void {
  writeText(folderPlace, path);
}
