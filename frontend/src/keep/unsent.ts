/** Messages on their way to the server: kept on this browser's disk until the server has them. */

import { Api, Away, Problem, freshKey } from "../api/client";
import type { Accepted, Parameters, Session, Turn, UploadedFile } from "../api/types";
import type { Disk, StoreName } from "./disk";

/** The name that browsers hold since the first release: unsent messages lie there. */
const store: StoreName = "outbox";

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
  /** Until then: messages with the same place go into the same session. */
  place?: string;
  leaving: string | null;
  /** Until then: the folder that the session is to work in. */
  project?: string | null;
  text: string;
  files: LocalFile[];
  model: string | null;
  profile: string | null;
  parameters?: Parameters | null;
  /** The parameters are not the session's. */
  isOnce?: boolean;
  whenBusy: "queue" | "steer" | "interrupt";
  /** The queued turn whose words these are: it leaves the queue when the server has them. */
  removes?: string;
  /** The last turn when it was written: what comes after it may be this one. */
  after?: string | null;
  at: number;
  /** It is on this browser's disk, not only in this page. */
  isKept?: boolean;
  state: "sending" | "failed";
  /** Why it failed; empty: the server could not be reached, and it is tried again by itself. */
  problem: string;
}

export interface SenderListener {
  onChange(entries: readonly Unsent[]): void;
  onCreated(entry: Unsent, session: Session): void;
  onAccepted(entry: Unsent, accepted: Accepted): void;
  /** Refused, and nothing is left to be sent: it is still where it was. */
  onRefused(problem: Problem): void;
}

export class Sender {
  private entries: Unsent[] = [];
  private readonly underWay = new Set<string>();
  private readonly lines = new Map<string, Promise<void>>();

  constructor(
    private readonly api: Api,
    private readonly disk: Disk,
    private readonly listener: SenderListener,
  ) {}

  /** Find what an earlier visit could not send. It is tried once more, with the same keys. */
  async restore(): Promise<void> {
    const kept = await this.disk.all<Unsent>(store);
    for (const entry of kept) {
      if (!this.entries.some((known) => known.key === entry.key)) this.entries.push({ ...entry, isKept: true, state: "failed" });
    }
    this.entries.sort((left, right) => left.at - right.at);
    this.changed();
    await this.retryAll();
  }

  /** True when the server has it. `onKept` is called when this has it: only then may the draft go. */
  async send(entry: Omit<Unsent, "key" | "state" | "problem" | "at" | "isKept">, onKept: () => void = () => {}): Promise<boolean> {
    if (entry.removes && this.entries.some((known) => known.removes === entry.removes)) return false;
    const full: Unsent = { ...entry, key: freshKey(), at: Date.now(), state: "sending", problem: "" };
    this.entries.push(full);
    // retryAll leaves it alone until it is kept.
    this.underWay.add(full.key);
    this.changed();
    await this.keep(full);
    onKept();
    await this.queueUp(full.key);
    return !this.find(full.key);
  }

  private async keep(entry: Unsent): Promise<void> {
    const isKept = await this.disk.put(store, entry.key, entry);
    if (isKept !== entry.isKept) this.change(entry.key, { isKept });
  }

  again(key: string): Promise<void> {
    return this.deliver(key);
  }

  /** Do not send it. Its files stay: the draft holds them now. */
  async withdraw(key: string): Promise<void> {
    this.forget(key);
    await this.disk.delete(store, key);
  }

  /** The server is reachable again: send what only waited for that, in the order it was written. */
  async retryAll(): Promise<void> {
    for (const entry of [...this.entries]) if (!entry.problem) await this.deliver(entry.key);
  }

  private async deliver(key: string): Promise<void> {
    if (!this.find(key) || this.underWay.has(key)) return;
    this.underWay.add(key);
    this.change(key, { state: "sending", problem: "" });
    await this.queueUp(key);
  }

  /** One after the other in each session: two requests at once may arrive in any order. */
  private async queueUp(key: string): Promise<void> {
    const entry = this.find(key);
    const line = entry?.session ?? entry?.place ?? key;
    const mine = (this.lines.get(line) ?? Promise.resolve()).then(() => this.carry(key));
    this.lines.set(line, mine.catch(() => undefined));
    await mine;
  }

  private async carry(key: string): Promise<void> {
    try {
      // Other tabs know it from the disk. One of them at a time, where the browser can see to that: on plain HTTP
      // it cannot, and the key alone has to do.
      if (this.find(key)?.isKept && navigator.locks) await navigator.locks.request(`everturn.${key}`, () => this.hand(key));
      else await this.hand(key);
    } finally {
      this.underWay.delete(key);
    }
  }

  private async hand(key: string): Promise<void> {
    if (!(await this.refresh(key))) return;
    try {
      const accepted = await this.attempt(key);
      // Durable there: only now may it go here.
      const sent = this.find(key);
      this.forget(key);
      if (sent && accepted) this.listener.onAccepted(sent, accepted);
      await this.disk.delete(store, key);
      for (const file of sent?.files ?? []) await this.disk.delete("files", file.id);
    } catch (error) {
      if (!(error instanceof Away) && !(error instanceof Problem)) throw error;
      await this.failed(key, error);
    }
  }

  /** What is on the disk counts: another tab may have sent it meanwhile, or taken it back. */
  private async refresh(key: string): Promise<boolean> {
    const entry = this.find(key);
    if (!entry?.isKept) return !!entry;
    // A disk that cannot be read any more says nothing about it.
    const kept = await this.disk.get<Unsent>(store, key).catch(() => entry);
    if (kept) this.change(key, { session: kept.session ?? entry.session, files: kept.files });
    else this.forget(key);
    return !!kept;
  }

  private async failed(key: string, error: Away | Problem): Promise<void> {
    // What is the server's trouble, a full disk too, passes; the same key makes trying again safe.
    const isLater = error instanceof Away || error.status === 401 || error.status === 429 || error.status >= 500;
    if (isLater) {
      this.change(key, { state: "failed", problem: "" });
    } else if (this.find(key)?.removes) {
      await this.withdraw(key);
      this.listener.onRefused(error);
    } else if (await this.refresh(key)) {
      const entry = this.change(key, { state: "failed", problem: error.message });
      if (entry.session && isNotThere(error) && (await this.isGone(entry.session))) await this.detach(entry);
    }
  }

  /** The session was deleted: what could not be sent there can begin another one. */
  async orphan(session: string, problem: string): Promise<void> {
    for (const { key } of this.entries.filter((entry) => entry.session === session)) {
      if (this.underWay.has(key) || !(await this.refresh(key))) continue;
      await this.detach(this.change(key, { state: "failed", problem }));
    }
  }

  /** Under a key that has made no session yet, and that every tab would give it. */
  private async detach(entry: Unsent): Promise<void> {
    const { removes: _, ...rest } = entry;
    const next: Unsent = { ...rest, key: `${entry.key}-elsewhere`, session: null, place: `${entry.session}-elsewhere`, after: null };
    this.entries = this.entries.map((known) => (known.key === entry.key ? next : known));
    this.changed();
    await this.keep(next);
    await this.disk.delete(store, entry.key);
  }

  private async isGone(session: string): Promise<boolean> {
    try {
      await this.api.get<Session>(`api/sessions/${session}`);
    } catch (error) {
      return isNotThere(error);
    }
    return false;
  }

  /** Null: there was nothing left to send. */
  private async attempt(key: string): Promise<Accepted | null> {
    let entry = this.find(key)!;
    // It has begun, or was taken out of the queue, meanwhile.
    if (entry.removes && !(await this.isQueued(entry))) return null;
    if (!entry.session) {
      entry = await this.create(entry);
    }
    for (const file of entry.files) if (!file.fileId) entry = await this.upload(entry, file);
    const accepted = await this.api.post<Accepted>(`api/sessions/${entry.session}/turns`, {
      key,
      body: {
        text: entry.text,
        attachments: entry.files.length ? entry.files.map((file) => file.fileId) : undefined,
        model: entry.model ?? undefined,
        profile: entry.profile ?? undefined,
        parameters: entry.parameters ?? undefined,
        when_busy: entry.whenBusy === "queue" ? undefined : entry.whenBusy,
      },
    });
    if (entry.removes) await this.unqueue(entry);
    return accepted;
  }

  /** The session of this message, and of those that were written for the same place meanwhile. */
  private async create(entry: Unsent): Promise<Unsent> {
    const place = entry.place ?? entry.key;
    const body = { leaving: entry.leaving ?? undefined, project: entry.project ?? undefined };
    const session = await this.api.post<Session>("api/sessions", { body, key: `${place}-session` });
    // What was chosen for the first message is the session's.
    const parameters = (!entry.isOnce && entry.parameters) || undefined;
    if (entry.model || entry.profile || parameters)
      await this.api.patch(`api/sessions/${session.id}`, { body: { model: entry.model ?? undefined, profile: entry.profile ?? undefined, parameters } });
    // The next message to the session comes after these, however long their files take.
    this.lines.set(session.id, this.lines.get(place)!);
    const joining = this.entries.filter((known) => !known.session && (known.place ?? known.key) === place);
    for (const { key } of joining) await this.keepChange(this.change(key, { session: session.id }));
    const created = this.find(entry.key)!;
    this.listener.onCreated(created, session);
    return created;
  }

  private async isQueued(entry: Unsent): Promise<boolean> {
    try {
      await this.api.get<Turn>(`api/sessions/${entry.session}/queue/${entry.removes}`);
      return true;
    } catch (error) {
      if (!isNotThere(error)) throw error;
      return false;
    }
  }

  private async unqueue(entry: Unsent): Promise<void> {
    try {
      await this.api.delete(`api/sessions/${entry.session}/queue/${entry.removes}`);
    } catch (error) {
      // It has begun in this very moment, and cannot be unsaid.
      if (!isNotThere(error) && !(error instanceof Problem && error.status === 409)) throw error;
    }
  }

  private async upload(entry: Unsent, file: LocalFile): Promise<Unsent> {
    const kept = await this.disk.get<{ blob: Blob }>("files", file.id);
    if (!kept) throw new Problem(410, "file_gone", `${file.name} is no longer in this browser.`);
    const uploaded = await upload(this.api, kept.blob, file.name);
    const files = entry.files.map((known) => (known.id === file.id ? { ...known, fileId: uploaded.id } : known));
    const next = this.change(entry.key, { files });
    await this.keepChange(next);
    return next;
  }

  private async keepChange(entry: Unsent): Promise<void> {
    if (entry.isKept) await this.disk.update(store, entry.key, entry);
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

function isNotThere(error: unknown): boolean {
  return error instanceof Problem && (error.status === 404 || error.status === 410);
}

export function upload(api: Api, blob: Blob, name: string): Promise<UploadedFile> {
  const form = new FormData();
  form.append("file", blob, name);
  return api.post<UploadedFile>("api/uploads", { body: form, timeoutMs: 600_000 });
}
