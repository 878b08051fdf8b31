import { Away, type Api } from "../api/client";
import type { Asks, ListEvent, Session } from "../api/types";
import * as lists from "../state/list";

const pageSize = 100;
const pinnedMax = 200;

/** The session list: what was read of it, and what the server has said since. */
export class Sessions {
  isRead = $state(false);
  /** What each waiting session waits for: approval, question or doubt. */
  topics = $state.raw<ReadonlyMap<string, string>>(new Map());
  private list = $state.raw<lists.SessionList>(lists.emptyList);
  private cursor: string | null = null;
  private topicsFor = "";
  private isMarking = false;

  constructor(
    private readonly api: Api,
    private readonly complain: (error: unknown) => void,
    private readonly onChange: () => void,
  ) {}

  get rows(): Session[] {
    // Delegates are found at the turn that they work for.
    return [...this.list.rows.values()].filter((row) => !this.list.hidden.has(row.id) && !row.parent_session);
  }

  /** The sessions that wait for the user, newest first. */
  get waiting(): Session[] {
    return this.rows.filter(lists.needsYou).sort((left, right) => right.updated_at - left.updated_at);
  }

  find(id: string): Session | null {
    return this.list.rows.get(id) ?? null;
  }

  /** It was deleted, here or in another tab, and has not come back. */
  isDeleted(id: string): boolean {
    return this.list.deleted.has(id);
  }

  /** The archived ones: these rows, read earlier, and what has become known since. */
  archived(read: readonly Session[]): Session[] {
    const known = lists.put(this.list, read);
    return [...known.rows.values()].filter((row) => row.archived && !known.hidden.has(row.id));
  }

  put(...rows: Session[]): void {
    this.update(lists.put(this.list, rows));
  }

  /** Take a deleted session out of sight until the server has answered. */
  hide(id: string): void {
    this.update(lists.hide(this.list, id, true));
  }

  unhide(id: string): void {
    this.update(lists.hide(this.list, id, false));
  }

  /** A deleted session was restored. */
  revive(row: Session): void {
    this.update(lists.hide(lists.revive(this.list, [row]), row.id, false));
  }

  private update(list: lists.SessionList): void {
    this.list = list;
    this.onChange();
  }

  // --- the server -----------------------------------------------------------------------------

  async read(): Promise<void> {
    try {
      // A pinned session stands at the top, however long ago it was used.
      const [page, pinned] = await Promise.all([this.readRows({ limit: pageSize }), this.readRows({ pinned: "true", limit: pinnedMax })]);
      this.put(...page.items, ...pinned.items);
      this.cursor = page.cursor ?? null;
      this.isRead = true;
      void this.readTopics();
    } catch (error) {
      if (!(error instanceof Away)) this.complain(error);
    }
  }

  async more(): Promise<void> {
    const cursor = this.cursor;
    if (!cursor) return;
    this.cursor = null;
    try {
      const page = await this.readRows({ limit: pageSize, cursor });
      this.put(...page.items);
      this.cursor = page.cursor ?? null;
    } catch (error) {
      this.cursor = cursor;
      throw error;
    }
  }

  private readRows(query: Record<string, string | number>): Promise<{ items: Session[]; cursor?: string | null }> {
    return this.api.get("api/sessions", { query });
  }

  /** Read a session that the list does not hold yet. */
  async readOne(id: string): Promise<void> {
    if (this.find(id)) return;
    try {
      // Read first: a list taken before the answer lacks what came in the meantime.
      const row = await this.api.get<Session>(`api/sessions/${id}`);
      this.put(row);
    } catch (error) {
      // The conversation itself says that it is gone or that the server is away.
      if (!(error instanceof Error)) throw error;
    }
  }

  /** Apply news about the list. Returns the sessions that want the user's attention now. */
  hear(events: readonly ListEvent[]): Session[] {
    const before = this.list;
    this.update(events.reduce(lists.hear, before));
    void this.readTopics();
    return lists.calling(before, this.list);
  }

  private async readTopics(): Promise<void> {
    const waiting = this.waiting.map((row) => row.id).sort().join();
    if (waiting === this.topicsFor) return;
    this.topicsFor = waiting;
    if (!waiting) return;
    try {
      const { items } = await this.api.get<Asks>("api/approvals");
      this.topics = new Map(items.map((ask) => [ask.root_session ?? ask.session_id, ask.topic]));
    } catch (error) {
      // The mark then says "Approve" for every kind; the session itself tells them apart.
      if (!(error instanceof Error)) throw error;
    }
  }

  /** Returns whether the server has taken the change. */
  async change(session: Session, change: Record<string, unknown>): Promise<boolean> {
    try {
      this.put(await this.api.patch<Session>(`api/sessions/${session.id}`, { body: change }));
      return true;
    } catch (error) {
      this.complain(error);
      return false;
    }
  }

  /** The session is in view: say so. If that cannot be said now it stays unread; nothing else depends on it. */
  markRead(row: Session | null): void {
    if (!row?.is_unread || this.isMarking || document.visibilityState !== "visible") return;
    this.isMarking = true;
    const end = () => (this.isMarking = false);
    this.api.patch<Session>(`api/sessions/${row.id}`, { body: { is_unread: false } }).then((now) => {
      end();
      this.put(now);
    }, end);
  }
}
