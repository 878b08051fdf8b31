import { explain, Problem, type Api } from "../api/client";
import type { Answered, Ask, BudgetList, Budget, ListEvent, Needs, Session } from "../api/types";
import { byPeople, merge, needsOf, type Need } from "../state/needs";
import { words } from "../words";
import { Answers } from "./answers.svelte";

const soonMs = 120;
/** Another process's writes are only known to have happened: they must not make this page ask without end. */
const apartMs = 1_000;

/** What needs the user, and what is done about it. Read anew when the server says that it may have changed. */
export class NeedsList {
  rows = $state.raw<readonly Need[]>([]);
  isRead = $state(false);
  problem = $state("");
  /** What people have answered since midnight, the latest first. */
  answered = $state.raw<readonly Ask[]>([]);
  budgets = $state.raw<ReadonlyMap<string, Budget>>(new Map());
  /** Rows whose whole text the user has unfolded. */
  unfolded = $state.raw<ReadonlySet<string>>(new Set());
  busy = $state.raw<ReadonlySet<string>>(new Set());
  /** Why an answer was not saved, and how to try again. */
  unsaved = $state.raw<ReadonlyMap<string, { why: string; again: () => void }>>(new Map());
  readonly answers: Answers;
  private isShown = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private lastAt = 0;
  private reading: Promise<void> | null = null;

  constructor(
    private readonly api: Api,
    private readonly onChange: () => void = () => undefined,
  ) {
    this.answers = new Answers(api);
  }

  get count(): number {
    return this.rows.filter((row) => !row.settled).length;
  }

  /** The page is opened: what was settled before is gone. */
  async visit(): Promise<void> {
    this.isShown = true;
    this.update(this.rows.filter((row) => !row.settled));
    await Promise.all([this.read(), this.readAnswered()]);
  }

  leave(): void {
    this.isShown = false;
    this.update(this.rows.filter((row) => !row.settled));
  }

  unfold(id: string): void {
    this.unfolded = new Set([...this.unfolded, id]);
  }

  // --- reading ----------------------------------------------------------------------------------

  hear(events: readonly ListEvent[], known: (id: string) => Session | null): void {
    const isNews = events.some((event) => {
      if (event.kind === "needs.changed" || event.kind === "session.deleted") return true;
      const now = event.session;
      if (!now) return false;
      const before = known(now.id);
      return (before?.asks ?? 0) !== (now.asks ?? 0) || (event.kind === "session.done" && this.rows.length > 0);
    });
    if (isNews) this.readSoon();
  }

  readSoon(): void {
    if (this.timer !== undefined) return;
    const waitMs = Math.max(soonMs, this.lastAt + apartMs - Date.now());
    this.timer = setTimeout(() => {
      this.timer = undefined;
      void this.read();
    }, waitMs);
  }

  async read(): Promise<void> {
    // An answer that is on its way may be older than the news.
    await this.reading;
    this.reading = this.readNow();
    await this.reading;
    this.reading = null;
  }

  private async readNow(): Promise<void> {
    this.lastAt = Date.now();
    try {
      const now = needsOf(await this.api.get<Needs>("api/needs"));
      const present = new Set(now.map((row) => row.id));
      const isGone = this.isShown && this.rows.some((row) => !row.settled && !present.has(row.id));
      if (isGone) await this.readAnswered();
      if (this.isShown && now.some((row) => row.kind === "budget")) await this.readBudgets();
      const answered = new Map(this.everAnswered.map((ask) => [ask.id, ask]));
      this.update(this.isShown ? merge(this.rows, now, answered, Date.now()) : now);
      this.isRead = true;
      this.problem = "";
    } catch (error) {
      this.problem = words.couldNotLoad(explain(error, words.serverAway));
    }
  }

  private everAnswered: readonly Ask[] = [];

  private async readAnswered(): Promise<void> {
    const since = new Date().setHours(0, 0, 0, 0);
    try {
      this.everAnswered = (await this.api.get<Answered>("api/needs/answered", { query: { since } })).items;
      this.answered = byPeople(this.everAnswered);
    } catch (error) {
      // The rows themselves can still be shown and answered.
      if (!(error instanceof Error)) throw error;
    }
  }

  private async readBudgets(): Promise<void> {
    const { items } = await this.api.get<BudgetList>("api/budgets");
    this.budgets = new Map(items.map((budget) => [budget.id, budget]));
  }

  private update(rows: readonly Need[]): void {
    this.rows = rows;
    this.onChange();
  }

  // --- deciding ---------------------------------------------------------------------------------

  /** Do it for this row, then read what is left. If it could not be saved the row stays open and says so. */
  async act(need: Need, what: () => Promise<unknown>): Promise<void> {
    if (this.busy.has(need.id)) return;
    this.busy = new Set([...this.busy, need.id]);
    this.unsaved = new Map([...this.unsaved].filter(([id]) => id !== need.id));
    try {
      await what();
    } catch (error) {
      const why = error instanceof Problem ? error.message : explain(error, words.serverAway);
      this.unsaved = new Map([...this.unsaved, [need.id, { why, again: () => void this.act(need, what) }]]);
    }
    // Also after a refusal: it may have been answered elsewhere.
    await this.read();
    this.busy = new Set([...this.busy].filter((id) => id !== need.id));
  }

  /** Every turn that waits for the same budget waits on until its period turns over. */
  async dismiss(need: Need): Promise<void> {
    const ids = need.asks.length ? need.asks.map((ask) => ask.id) : [need.id];
    for (const id of ids) await this.api.post("api/needs/dismiss", { body: { id } });
    this.settle(need, "dismissed");
  }

  async runAgain(need: Need): Promise<void> {
    await this.api.post(`api/schedules/${need.schedule!.schedule_id}/run`);
    this.settle(need, "run");
  }

  async decideSend(need: Need, how: "resend" | "arrived"): Promise<void> {
    await this.api.post(`api/gateway/parts/${need.id}/${how}`);
    this.settle(need, how);
  }

  /** The server does not keep who has decided about these: this page has. */
  private settle(need: Need, answer: string): void {
    this.update(this.rows.map((row) => (row.id === need.id ? { ...row, settled: { answer, by: "", at: Date.now() } } : row)));
  }
}
