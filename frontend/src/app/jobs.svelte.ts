import { Away, Problem, type Api } from "../api/client";
import type { Job, JobList, ListEvent } from "../api/types";
import { isAtWork, merge } from "../state/jobs";

const pageSize = 50;
/** After news about jobs: several of them cause one reading. */
const lookSoonMs = 400;
const lookGapMs = 2_000;
/** While jobs run: what no news tells, such as a machine that has stopped answering. */
const lookMs = 15_000;

/** The jobs of all sessions, as far as they were read. */
export class Jobs {
  all = $state.raw<readonly Job[]>([]);
  isRead = $state(false);
  /** There may be older ones. */
  hasMore = $state(false);
  private timer: ReturnType<typeof setTimeout> | null = null;
  private readAt = 0;
  private isStale = false;
  private readonly asked = new Set<string>();

  constructor(
    private readonly api: Api,
    private readonly complain: (error: unknown) => void,
  ) {
    setInterval(() => this.running.length && this.look(), lookMs);
  }

  get running(): Job[] {
    return this.all.filter(isAtWork);
  }

  of(session: string): Job[] {
    return this.all.filter((job) => job.session_id === session);
  }

  find(id: string): Job | null {
    return this.all.find((job) => job.id === id) ?? null;
  }

  /** Read them soon: something has happened that may be about jobs. */
  look(): void {
    if (document.visibilityState !== "visible") this.isStale = true;
    else this.timer ??= setTimeout(() => void this.read(), Math.max(lookSoonMs, this.readAt + lookGapMs - Date.now()));
  }

  hear(events: readonly ListEvent[]): void {
    if (events.some((event) => event.kind === "jobs.changed")) this.look();
  }

  /** The page is in view again: read what was not read while it was hidden. */
  shown(): void {
    if (this.isStale) this.look();
  }

  async read(): Promise<void> {
    if (this.timer) clearTimeout(this.timer);
    this.timer = null;
    this.readAt = Date.now();
    this.isStale = false;
    try {
      const { items } = await this.api.get<JobList>("api/jobs", { query: { limit: pageSize } });
      if (!this.isRead) this.hasMore = items.length === pageSize;
      this.isRead = true;
      this.all = merge(this.all, items);
      // One that is known to run and is older than these.
      const listed = new Set(items.map((job) => job.id));
      for (const job of this.running) if (!listed.has(job.id)) await this.readOne(job.id);
    } catch (error) {
      if (!(error instanceof Away)) this.complain(error);
    }
  }

  async more(): Promise<void> {
    const before = this.all[this.all.length - 1]?.id;
    const { items } = await this.api.get<JobList>("api/jobs", { query: { limit: pageSize, before } });
    this.hasMore = items.length === pageSize;
    this.all = merge(this.all, items);
  }

  /** All that a session has, also the older ones. Read once; what is new is heard. */
  async readSession(session: string): Promise<void> {
    if (this.asked.has(session)) return;
    this.asked.add(session);
    try {
      const { items } = await this.api.get<JobList>("api/jobs", { query: { session, limit: pageSize } });
      this.all = merge(this.all, items);
    } catch (error) {
      this.asked.delete(session);
      if (!(error instanceof Error)) throw error;
    }
  }

  /** False if there is none. */
  async readOne(id: string): Promise<boolean> {
    try {
      this.all = merge(this.all, [await this.api.get<Job>(`api/jobs/${id}`)]);
      return true;
    } catch (error) {
      if (!(error instanceof Problem)) return true;
      this.all = this.all.filter((job) => job.id !== id);
      return false;
    }
  }

  async stop(job: Job): Promise<void> {
    this.all = merge(this.all, [await this.api.post<Job>(`api/jobs/${job.id}/stop`)]);
    this.look();
  }

  async changeEnd(job: Job, when: Job["when_ended"]): Promise<void> {
    this.all = merge(this.all, [await this.api.patch<Job>(`api/jobs/${job.id}`, { body: { when_ended: when } })]);
  }
}
