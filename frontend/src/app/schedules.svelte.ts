import { explain, type Api } from "../api/client";
import type { BudgetList, Budget, ListEvent, Occurrence, Occurrences, ReadSentence, SchedulePreview, ScheduleList, ScheduleRule, ScheduleView } from "../api/types";
import { changesOf, type Draft } from "../state/schedules";
import { words } from "../words";

const soonMs = 150;
const historyPage = 50;

/** What runs on its own. Read anew when the server says that it may have changed. */
export class Schedules {
  items = $state.raw<readonly ScheduleView[]>([]);
  chats = $state.raw<ScheduleList["chats"]>([]);
  /** What may be spent in each run, by schedule. */
  budgets = $state.raw<ReadonlyMap<string, Budget>>(new Map());
  timezone = $state("");
  isRead = $state(false);
  problem = $state("");
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly api: Api) {}

  find(id: string | null): ScheduleView | null {
    return this.items.find((one) => one.id === id) ?? null;
  }

  /** Of schedules that name none: the server's, or this browser's where the server has the default. */
  get ownZone(): string {
    return this.timezone && this.timezone !== "UTC" ? this.timezone : Intl.DateTimeFormat().resolvedOptions().timeZone;
  }

  /** A run begins and ends as a turn of its session; times without a run are news of their own. */
  hear(events: readonly ListEvent[]): void {
    if (events.some((event) => event.kind === "needs.changed" || event.kind === "session.busy" || event.kind === "session.done" || event.session?.active_state === "waiting")) this.readSoon();
  }

  readSoon(): void {
    if (this.timer !== undefined) return;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      void this.read();
    }, soonMs);
  }

  async read(): Promise<void> {
    try {
      const items: ScheduleView[] = [];
      for (let cursor: string | undefined; ; ) {
        const page = await this.api.get<ScheduleList>("api/schedules", { query: { limit: 200, cursor } });
        items.push(...page.items);
        this.chats = page.chats;
        this.timezone = page.timezone;
        cursor = page.cursor ?? undefined;
        if (!cursor) break;
      }
      const budgets = await this.api.get<BudgetList>("api/budgets");
      this.budgets = new Map(budgets.items.filter((one) => one.scope === "schedule").map((one) => [one.subject, one]));
      this.items = items;
      this.isRead = true;
      this.problem = "";
    } catch (error) {
      this.problem = words.couldNotLoad(explain(error, words.serverAway));
    }
  }

  understand(sentence: string, timezone: string, signal: AbortSignal): Promise<ReadSentence> {
    return this.api.post("api/schedules/read", { body: { sentence, timezone }, signal });
  }

  preview(rule: ScheduleRule, timezone: string, signal: AbortSignal): Promise<SchedulePreview> {
    return this.api.post("api/schedules/preview", { body: { rule, timezone }, signal });
  }

  /** Store the draft. `budget` undefined: as it was; null: none. Returns the schedule as it is now. */
  async save(draft: Draft, schedule: ScheduleView | null, budget: number | null | undefined): Promise<ScheduleView> {
    let saved = schedule;
    if (!saved) saved = await this.api.post<ScheduleView>("api/schedules", { body: draft });
    else {
      const changes = changesOf(draft, saved);
      if (Object.keys(changes).length) saved = await this.api.patch<ScheduleView>(`api/schedules/${saved.id}`, { body: changes });
    }
    this.put(saved);
    if (budget !== undefined) await this.api.put("api/budgets", { body: { scope: "schedule", subject: saved.id, amount: budget } });
    await this.read();
    return this.find(saved.id) ?? saved;
  }

  async setPaused(schedule: ScheduleView, paused: boolean): Promise<void> {
    this.put(await this.api.patch<ScheduleView>(`api/schedules/${schedule.id}`, { body: { paused } }));
  }

  async run(schedule: ScheduleView): Promise<void> {
    await this.api.post<Occurrence>(`api/schedules/${schedule.id}/run`);
    await this.read();
  }

  async remove(schedule: ScheduleView): Promise<void> {
    await this.api.delete(`api/schedules/${schedule.id}`);
    this.items = this.items.filter((one) => one.id !== schedule.id);
  }

  /** Its times, newest first; `before`: the due time of the last one that was read. */
  async history(id: string, before?: number): Promise<{ items: Occurrence[]; isAll: boolean }> {
    const { items } = await this.api.get<Occurrences>(`api/schedules/${id}/occurrences`, { query: { limit: historyPage, before } });
    return { items, isAll: items.length < historyPage };
  }

  private put(schedule: ScheduleView): void {
    const isKnown = this.items.some((one) => one.id === schedule.id);
    this.items = isKnown ? this.items.map((one) => (one.id === schedule.id ? schedule : one)) : [...this.items, schedule];
  }
}

