import { Problem, type Api } from "../api/client";
import { choicesOf, type AskState, type CallItem } from "../state/items";
import { argumentsFrom, fieldsOf, type Field } from "../state/tools";
import { words } from "../words";

const refusals = ["deny", "leave them out", "not now"];

/** Answers to what waits for the user, on their way or still being thought about. */
export class Answers {
  /** Asks whose answer is on its way. */
  answering = $state.raw<ReadonlySet<string>>(new Set());
  /** Asks whose text was not read to its end yet, and how to bring the end on the screen. */
  readonly unread = new Map<string, () => void>();
  /** Asks that the user leaves to time: what they wait for comes by itself. */
  left = $state.raw<ReadonlySet<string>>(new Set());
  /** The call that is being changed before it is allowed, as it is typed so far. */
  changing = $state.raw<{ ask: string; fields: Field[]; problem: string } | null>(null);

  constructor(
    private readonly api: Api,
    private readonly onAnswered: (ask: AskState, answer: string) => void = () => undefined,
  ) {}

  change(ask: AskState, call: CallItem): void {
    if (this.changing?.ask !== ask.id) this.changing = { ask: ask.id, fields: fieldsOf(call.arguments), problem: "" };
  }

  /** Allow the call as it was changed. What does not fit is said beside it; the question stays. */
  async allowChanged(ask: AskState, call: CallItem): Promise<void> {
    const { changing } = this;
    if (changing?.ask !== ask.id) return;
    const made = argumentsFrom(changing.fields);
    if ("wrong" in made) {
      this.changing = { ...changing, problem: words.notJson(made.wrong) };
      return;
    }
    const before = argumentsFrom(fieldsOf(call.arguments));
    const isSame = "given" in before && before.given === made.given;
    try {
      await this.answer(ask, "once", isSame ? undefined : made.given);
      this.changing = null;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.changing = { ...changing, problem: error.message };
    }
  }

  /** What a key does about an ask; null: nothing. A text that was not read to its end is brought on the screen first. */
  byKey(ask: AskState, call: CallItem | null, key: string): (() => Promise<void> | void) | null {
    const showRest = this.unread.get(ask.id);
    if (key === "e" && ask.topic === "approval" && call && ask.options.includes("once")) return showRest ?? (() => this.change(ask, call));
    const decision = { y: "once", s: "session", n: "deny" }[key];
    const choice = /^[1-9]$/.test(key) ? choicesOf(ask)[Number(key) - 1] : undefined;
    const value = ask.topic === "approval" ? (decision && ask.options.includes(decision) ? decision : undefined) : choice;
    if (!value) return null;
    return showRest && !refusals.includes(value) ? showRest : () => this.answer(ask, value);
  }

  async answer(ask: AskState, answer: string, changed?: string): Promise<void> {
    if (this.answering.has(ask.id)) return;
    this.answering = new Set([...this.answering, ask.id]);
    const decided = { decision: answer, ...(changed === undefined ? {} : { arguments: changed }) };
    try {
      if (ask.topic === "approval") await this.api.post(`api/approvals/${ask.id}`, { body: decided });
      else await this.api.post(`api/questions/${ask.id}`, { body: { answer } });
      this.onAnswered(ask, answer);
    } finally {
      this.answering = new Set([...this.answering].filter((id) => id !== ask.id));
    }
  }
}
