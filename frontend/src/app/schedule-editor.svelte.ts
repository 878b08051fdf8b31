import { explain, Problem } from "../api/client";
import type { ReadSentence, SchedulePreview, ScheduleRule, ScheduleView } from "../api/types";
import { changesOf, draftOf, isSame, sameRule, sentenceOf, type Draft } from "../state/schedules";
import { words } from "../words";
import type { Schedules } from "./schedules.svelte";

const typingMs = 250;

/** A schedule that is being made or changed. What is typed is read by the server, and said back. */
export class ScheduleEditor {
  draft = $state.raw<Draft>(draftOf(null, ""));
  /** One sentence with rule and task; null: they are written apart. */
  sentence = $state<string | null>("");
  preview = $state.raw<SchedulePreview | null>(null);
  /** What the sentence leaves open. */
  open = $state.raw<ReadSentence["reading"] | null>(null);
  note = $state("");
  /** Why there is no such rule. */
  problem = $state("");
  isReading = $state(false);
  isRuleOpen = $state(false);
  /** What may be spent in a run; undefined: as it is. */
  budget = $state<number | null | undefined>(undefined);
  isSaving = $state(false);
  unsaved = $state("");
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asking: AbortController | null = null;

  constructor(
    private readonly schedules: Schedules,
    readonly schedule: ScheduleView | null,
    sentence = "",
  ) {
    this.draft = draftOf(schedule, schedules.ownZone);
    if (schedule) this.start(schedule);
    else if (sentence) this.type(sentence);
  }

  get isDirty(): boolean {
    if (this.budget !== undefined) return true;
    if (!this.schedule) return !!this.draft.text || !!this.sentence;
    return Object.keys(changesOf(this.draft, this.schedule)).length > 0 || (this.sentence !== null && this.sentence !== sentenceOf(this.schedule));
  }

  get canSave(): boolean {
    return !this.isReading && !this.isSaving && !this.open && !this.problem && !!this.preview && !!this.draft.text.trim() && this.isDirty;
  }

  /** The name of a new schedule is taken from its task until the user writes one. */
  get name(): string {
    return this.draft.name || this.suggested;
  }
  suggested = $state("");

  set(change: Partial<Draft>): void {
    this.draft = { ...this.draft, ...change };
    this.unsaved = "";
  }

  /** Say an existing schedule as one sentence, if the server reads it back as the same one. */
  private start(schedule: ScheduleView): void {
    const said = sentenceOf(schedule);
    this.sentence = null;
    this.suggested = schedule.name;
    this.ask(async (signal) => {
      this.preview = await this.schedules.preview(schedule.rule, schedule.timezone, signal);
      const { reading } = await this.schedules.understand(said, schedule.timezone, signal);
      const isIt = !reading.question && sameRule(reading.timing?.rule, schedule.rule) && reading.text === schedule.text;
      if (isIt && isSame(this.draft, draftOf(schedule, ""))) this.sentence = said;
    });
  }

  type(sentence: string): void {
    this.sentence = sentence;
    this.isRuleOpen = false;
    this.unsaved = "";
    clearTimeout(this.timer);
    if (!sentence.trim()) {
      this.asking?.abort();
      this.isReading = false;
      this.clear();
      return;
    }
    this.isReading = true;
    this.timer = setTimeout(() => this.understand(), typingMs);
  }

  /** One of the offered meanings. */
  choose(sentence: string): void {
    this.sentence = sentence;
    this.understand();
  }

  private understand(): void {
    clearTimeout(this.timer);
    const sentence = this.sentence ?? "";
    this.ask(async (signal) => {
      const { reading, preview } = await this.schedules.understand(sentence, this.draft.timezone, signal);
      const isClear = !reading.question && !!reading.timing;
      this.open = isClear ? null : reading;
      this.note = reading.note ?? "";
      this.preview = preview ?? null;
      if (!reading.timing) return;
      this.suggested = this.schedule?.name ?? reading.name;
      const rule = this.schedule && sameRule(reading.timing.rule, this.schedule.rule) ? this.schedule.rule : reading.timing.rule;
      this.draft = { ...this.draft, text: reading.text, rule, timezone: reading.timing.timezone };
    });
  }

  /** Rule and task are written apart from now on. */
  setRule(rule: ScheduleRule, timezone = this.draft.timezone): void {
    this.sentence = null;
    this.open = null;
    this.note = "";
    this.set({ rule, timezone });
    clearTimeout(this.timer);
    this.isReading = true;
    this.timer = setTimeout(() => this.ask(async (signal) => void (this.preview = await this.schedules.preview(rule, timezone, signal))), typingMs);
  }

  /** Only the answer to the latest question counts. */
  private ask(what: (signal: AbortSignal) => Promise<void>): void {
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    this.isReading = true;
    this.problem = "";
    what(asking.signal)
      .catch((error: unknown) => {
        if (asking.signal.aborted) return;
        this.clear();
        this.problem = explain(error, words.serverAway);
      })
      .finally(() => {
        if (this.asking === asking) this.isReading = false;
      });
  }

  private clear(): void {
    this.preview = null;
    this.open = null;
    this.note = "";
    this.problem = "";
  }

  /** Returns the schedule, or null: it was not saved, and why is said. */
  async save(): Promise<ScheduleView | null> {
    if (!this.canSave) return null;
    this.isSaving = true;
    this.unsaved = "";
    try {
      return await this.schedules.save({ ...this.draft, name: this.name }, this.schedule, this.budget);
    } catch (error) {
      this.unsaved = error instanceof Problem ? error.message : explain(error, words.serverAway);
      return null;
    } finally {
      this.isSaving = false;
    }
  }

  close(): void {
    clearTimeout(this.timer);
    this.asking?.abort();
  }
}
