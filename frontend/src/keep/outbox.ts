/** Messages on their way to the server: kept on this browser's disk until the server has them. */

import { Api, Away, Problem, freshKey } from "../api/client";
import type { Accepted, Session, UploadedFile } from "../api/types";
import type { Disk } from "./disk";

export interface LocalFile {
  id: string;
  name: string;
  type: string;
  size: number;
  /** The server's id, once it has the bytes. */
  fileId: string | null;
}

export interface Unsent {
  key: string;
  /** Null: the session itself is still to be created. */
  session: string | null;
  leaving: string | null;
  text: string;
  files: LocalFile[];
  model: string | null;
  profile: string | null;
  whenBusy: "queue" | "steer" | "interrupt";
  /** The last turn when it was written: what comes after it may be this one. */
  after?: string | null;
  at: number;
  /** It is on this browser's disk, not only in this page. */
  isKept?: boolean;
  state: "sending" | "failed";
  /** Why it failed; empty: the server could not be reached, and it is tried again by itself. */
  problem: string;
}

export interface OutboxListener {
  onChange(entries: readonly Unsent[]): void;
  onCreated(entry: Unsent, session: Session): void;
  onAccepted(entry: Unsent, accepted: Accepted): void;
}

export class Outbox {
  private entries: Unsent[] = [];
  private readonly underWay = new Set<string>();
  private readonly lines = new Map<string, Promise<void>>();

  constructor(
    private readonly api: Api,
    private readonly disk: Disk,
    private readonly listener: OutboxListener,
  ) {}

  /** Find what an earlier visit could not send. It is tried once more, with the same keys. */
  async restore(): Promise<void> {
    const kept = await this.disk.all<Unsent>("outbox");
    for (const entry of kept) {
      if (!this.entries.some((known) => known.key === entry.key)) this.entries.push({ ...entry, state: "failed" });
    }
    this.entries.sort((left, right) => left.at - right.at);
    this.changed();
    await this.retryAll();
  }

  /** `onKept` is called when this has it: only then may the draft go. */
  async send(entry: Omit<Unsent, "key" | "state" | "problem" | "at">, onKept: () => void = () => {}): Promise<void> {
    const full: Unsent = { ...entry, key: freshKey(), at: Date.now(), isKept: true, state: "sending", problem: "" };
    this.entries.push(full);
    this.changed();
    await this.keep(full);
    onKept();
    await this.deliver(full.key);
  }

  private async keep(entry: Unsent): Promise<void> {
    const isKept = await this.disk.put("outbox", entry.key, entry);
    if (isKept !== entry.isKept) this.change(entry.key, { isKept });
  }

  again(key: string): Promise<void> {
    return this.deliver(key);
  }

  async discard(key: string): Promise<void> {
    const entry = this.find(key);
    this.forget(key);
    await this.disk.delete("outbox", key);
    for (const file of entry?.files ?? []) await this.disk.delete("files", file.id);
  }

  /** The server is reachable again: send what only waited for that, in the order it was written. */
  async retryAll(): Promise<void> {
    for (const entry of [...this.entries]) if (!entry.problem) await this.deliver(entry.key);
  }

  private async deliver(key: string): Promise<void> {
    const entry = this.find(key);
    if (!entry || this.underWay.has(key)) return;
    this.underWay.add(key);
    this.change(key, { state: "sending", problem: "" });
    // One after the other in each session: two requests at once may arrive in any order.
    const line = entry.session ?? key;
    const mine = (this.lines.get(line) ?? Promise.resolve()).then(() => this.carry(key, entry));
    this.lines.set(line, mine.catch(() => undefined));
    await mine;
  }

  private async carry(key: string, entry: Unsent): Promise<void> {
    try {
      const accepted = await this.attempt(key);
      // Durable there: only now may it go here.
      const sent = this.find(key) ?? entry;
      this.forget(key);
      this.listener.onAccepted(sent, accepted);
      await this.disk.delete("outbox", key);
      for (const file of entry.files) await this.disk.delete("files", file.id);
    } catch (error) {
      if (!(error instanceof Away) && !(error instanceof Problem)) throw error;
      // What is the server's trouble, a full disk too, passes; the same key makes trying again safe.
      const isLater = error instanceof Away || error.status === 401 || error.status === 429 || error.status >= 500;
      this.change(key, { state: "failed", problem: isLater ? "" : error.message });
    } finally {
      this.underWay.delete(key);
    }
  }

  private async attempt(key: string): Promise<Accepted> {
    let entry = this.find(key)!;
    if (!entry.session) {
      const body = { leaving: entry.leaving ?? undefined };
      const session = await this.api.post<Session>("api/sessions", { body, key: `${key}-session` });
      entry = this.change(key, { session: session.id });
      await this.keep(entry);
      this.listener.onCreated(entry, session);
    }
    for (const file of entry.files) if (!file.fileId) entry = await this.upload(entry, file);
    return this.api.post<Accepted>(`api/sessions/${entry.session}/turns`, {
      key,
      body: {
        text: entry.text,
        attachments: entry.files.length ? entry.files.map((file) => file.fileId) : undefined,
        model: entry.model ?? undefined,
        profile: entry.profile ?? undefined,
        when_busy: entry.whenBusy === "queue" ? undefined : entry.whenBusy,
      },
    });
  }

  private async upload(entry: Unsent, file: LocalFile): Promise<Unsent> {
    const kept = await this.disk.get<{ blob: Blob }>("files", file.id);
    if (!kept) throw new Problem(410, "file_gone", `${file.name} is no longer in this browser.`);
    const uploaded = await upload(this.api, kept.blob, file.name);
    const files = entry.files.map((known) => (known.id === file.id ? { ...known, fileId: uploaded.id } : known));
    const next = this.change(entry.key, { files });
    await this.keep(next);
    return next;
  }

  private find(key: string): Unsent | undefined {
    return this.entries.find((entry) => entry.key === key);
  }

  private change(key: string, change: Partial<Unsent>): Unsent {
    this.entries = this.entries.map((entry) => (entry.key === key ? { ...entry, ...change } : entry));
    this.changed();
    return this.find(key)!;
  }

  private forget(key: string): void {
    this.entries = this.entries.filter((entry) => entry.key !== key);
    this.changed();
  }

  private changed(): void {
    this.listener.onChange([...this.entries]);
  }
}

export function upload(api: Api, blob: Blob, name: string): Promise<UploadedFile> {
  const form = new FormData();
  form.append("file", blob, name);
  return api.post<UploadedFile>("api/uploads", { body: form, timeoutMs: 600_000 });
}
