/** A turn as the transcript and its timeline tell it: the same items that its events would have made. */

import type { Bar, Message, Part, ResultPart, Turn } from "../api/types";
import { emptyTurn, isEnded, isNote, wishedCall, type CallItem, type Item, type TurnView } from "./items";
import { withArguments, withoutResult, tail } from "./live";
import { labelOf } from "./tools";

/** Everything of a turn that is on its row rather than in its messages. */
export function describe(view: TurnView, turn: Turn): TurnView {
  return {
    ...view,
    kind: turn.kind ?? "message",
    state: turn.state,
    createdAt: turn.created_at,
    startedAt: turn.started_at ?? null,
    endedAt: turn.ended_at ?? null,
    attempts: turn.attempts ?? 0,
    releasedEpoch: turn.state === "running" && turn.is_ready ? turn.epoch : null,
    failure: turn.failure ?? null,
    recovery: turn.recovery ?? "none",
    recoveredAt: turn.recovered_at ?? null,
    sibling: turn.sibling ?? 1,
    siblings: turn.siblings ?? 1,
    siblingIds: turn.sibling_ids ?? [],
    files: turn.files ?? view.files,
    replies: turn.replies ?? view.replies,
    parentId: turn.parent_id ?? null,
    model: turn.model ?? view.model,
  };
}

export function settle(turn: Turn | null, turnId: string, messages: Message[]): TurnView {
  const first = messages[0];
  let view = emptyTurn(turnId, first?.created_at ?? turn?.created_at ?? 0);
  if (turn) view = describe(view, turn);
  else view.state = "completed";
  const asked = messages.find((message) => message.role === "user" && !message.is_steering && !isNote(message)) ?? null;
  const summary = messages.flatMap((message) => message.parts).find((part) => part.type === "summary") ?? null;
  const rest = messages.filter((message) => message !== asked && message.role !== "summary");
  const bars = (turn?.timeline ?? []).map((bar) => closedWith(bar, view));
  return {
    ...view,
    asked,
    summary,
    bars,
    usage: turn?.usage ?? {},
    missedCache: bars.some((bar) => bar.missed_cache),
    finish: bars.findLast((bar) => bar.kind === "model")?.finish ?? "",
    model: rest.find((message) => message.model)?.model ?? view.model,
    items: new Threader(rest, bars, isEnded(view.state)).items(),
  };
}

/** What was under way when the turn ended, ended with it: as its events would have closed it. */
function closedWith(bar: Bar, view: TurnView): Bar {
  if (bar.end_at != null || view.endedAt === null || !isEnded(view.state)) return bar;
  return { ...bar, end_at: view.endedAt, state: bar.kind === "tool" ? "unknown" : "abandoned" };
}

interface StepParts {
  message: Message;
  parts: Part[];
  next: number;
  /** Of the part that is next: which cut comes, and how much of its text was given out. */
  cut: number;
  given: number;
  calls: CallItem[];
}

/** Threads a turn's messages along its timeline: attempts, calls, waits and gaps where they happened. */
class Threader {
  private readonly out: Item[] = [];
  private readonly steps: StepParts[] = [];
  private readonly results = new Map<string, ResultPart>();
  private readonly calls = new Map<string, CallItem>();
  private readonly queue: Message[];
  private readonly emitted = new Set<string>();

  constructor(
    messages: Message[],
    private readonly bars: Bar[],
    private readonly hasEnded: boolean,
  ) {
    this.queue = messages.filter((message) => message.role !== "tool");
    for (const message of messages) {
      for (const part of message.parts) if (part.type === "result") this.results.set(part.call_id, part);
      if (message.role === "assistant") this.steps.push(this.step(message));
    }
  }

  items(): Item[] {
    const stepOfNumber = this.numbered();
    let current: StepParts | null = null;
    let currentNumber = 0;
    for (const bar of this.bars) {
      switch (bar.kind) {
        case "model": {
          const step = stepOfNumber.get(bar.step ?? -1);
          if (step && step !== current) this.leave(current);
          if (step) current = step;
          currentNumber = bar.step ?? currentNumber;
          if (step) this.attempt(step, bar, currentNumber);
          break;
        }
        case "tool":
          if (bar.call_id) this.call(bar.call_id, bar);
          break;
        case "wait":
          if (bar.question) this.question(bar, current);
          else if (bar.call_id) this.decision(bar);
          break;
        case "down":
          this.seam(bar);
          break;
        default:
          // A kind that is missing here does not compile; one of a newer server is not shown.
          bar.kind satisfies never;
      }
    }
    this.leave(current);
    for (const message of [...this.queue]) this.upTo(message, true);
    return this.out;
  }

  private step(message: Message): StepParts {
    const calls = message.parts
      .filter((part) => part.type === "call")
      .map((part): CallItem => this.wish(part.id, part.name, part.arguments));
    return { message, parts: message.parts.filter((part) => part.type !== "call"), next: 0, cut: 0, given: 0, calls };
  }

  private wish(id: string, name: string, args: string): CallItem {
    const call = wishedCall(0, id, name, args);
    this.calls.set(id, call);
    return call;
  }

  /** A step's message was created when the step started, which is where its first bar begins. */
  private numbered(): Map<number, StepParts> {
    const found = new Map<number, StepParts>();
    const left = [...this.steps];
    for (const bar of this.bars) {
      if (bar.kind !== "model" || bar.step == null || found.has(bar.step)) continue;
      const index = left.findIndex((step) => step.message.created_at === bar.start_at);
      if (index >= 0) found.set(bar.step, left.splice(index, 1)[0]!);
    }
    return found;
  }

  /** Emit the messages that come before this one (steering), in the order of the transcript. */
  private upTo(message: Message, including: boolean): void {
    while (this.queue.length) {
      const first = this.queue[0]!;
      if (first === message && !including) return;
      this.queue.shift();
      if (first.role === "user") this.out.push({ kind: "steer", id: first.id, message: first });
      else if (first.role === "assistant") {
        const step = this.steps.find((known) => known.message === first)!;
        this.parts(step, step.parts.length, null, 0);
        this.leave(step);
      }
      if (first === message) return;
    }
  }

  private attempt(step: StepParts, bar: Bar, number: number): void {
    this.upTo(step.message, false);
    if (this.queue[0] === step.message) this.queue.shift();
    let until = step.parts.length;
    if (bar.state === "abandoned") {
      until = step.next;
      let sawText = false;
      while (until < step.parts.length) {
        const part = step.parts[until]!;
        if (part.type !== "text" && part.type !== "reasoning") break;
        if (!part.is_abandoned || (sawText && part.type === "reasoning")) break;
        sawText ||= part.type === "text";
        until += 1;
      }
    }
    const isCut = bar.state === "abandoned" && until === step.next && bar.first_token_at != null;
    this.parts(step, until, bar, number);
    if (isCut) this.upToCut(step, bar, number);
  }

  /** A call that died and was gone on with: its thoughts, and its text as far as it came. */
  private upToCut(step: StepParts, bar: Bar, number: number): void {
    const index = step.parts.findIndex((part, at) => at >= step.next && part.type === "text" && !part.is_abandoned);
    const part = step.parts[index];
    const until = part?.type === "text" ? part.cuts?.[index === step.next ? step.cut : 0] : undefined;
    if (until === undefined) return;
    this.parts(step, index, bar, number);
    this.text(step, until, number);
    step.cut += 1;
  }

  /** The text part that is next, from where it was left off to here. Characters are counted as the server does. */
  private text(step: StepParts, until: number | null, number: number): void {
    const part = step.parts[step.next]!;
    if (part.type !== "text") return;
    const isWhole = !step.given && until === null;
    const text = isWhole ? part.text : [...part.text].slice(step.given, until ?? undefined).join("");
    const id = `${step.message.id}:${step.next}${step.given ? `:${step.given}` : ""}`;
    if (until !== null) step.given = until;
    if (!text) return;
    const last = this.out.at(-1);
    // Gone on with at once, as after a dropped connection: nothing stands between.
    if (step.given && last?.kind === "text" && last.messageId === step.message.id && !last.isAbandoned && last.id !== id) {
      this.out[this.out.length - 1] = { ...last, text: last.text + text };
      return;
    }
    this.out.push({ kind: "text", id, step: number, text, isLive: false, isAbandoned: !!part.is_abandoned, reason: "", messageId: step.message.id });
  }

  private parts(step: StepParts, until: number, bar: Bar | null, number: number): void {
    for (; step.next < until; step.next += 1) {
      const part = step.parts[step.next]!;
      const id = `${step.message.id}:${step.next}`;
      if (part.type === "text" && part.text) {
        this.text(step, null, number);
        step.cut = step.given = 0;
      } else if (part.type === "reasoning" && part.text) {
        this.out.push({
          kind: "thought",
          id,
          step: number,
          text: part.text,
          isLive: false,
          isAbandoned: !!part.is_abandoned,
          startedAt: bar?.start_at ?? null,
          endedAt: bar?.thought_until ?? null,
        });
      }
    }
  }

  /** The step is over: what it said before it was cut, and calls that never began, have no bar of their own. */
  private leave(step: StepParts | null): void {
    if (step) this.parts(step, step.parts.length, null, 0);
    for (const call of step?.calls ?? []) this.call(call.callId, null);
  }

  private call(id: string, bar: Bar | null): void {
    const wish = this.calls.get(id);
    if (!wish) return;
    const result = this.results.get(id) ?? null;
    const known = result?.arguments == null ? wish : withArguments(wish, result.arguments);
    const call: CallItem = {
      ...known,
      label: bar?.label && bar.label !== known.name ? bar.label : known.label,
      startedAt: bar?.start_at ?? null,
      endedAt: bar?.end_at ?? null,
      output: tail(result?.output ?? ""),
      result,
      state: result ? "ended" : bar ? "running" : "wished",
    };
    const final = !result && this.hasEnded ? withoutResult(call) : call;
    if (this.emitted.has(id)) {
      // Run again after a restart: the card stays in its place and shows the newest attempt.
      if (!bar) return;
      const index = this.out.findIndex((item) => item.kind === "call" && item.callId === id);
      this.out[index] = { ...final, startedAt: bar.start_at };
      return;
    }
    this.emitted.add(id);
    this.out.push(final);
  }

  private decision(bar: Bar): void {
    if (bar.label !== "Approval" || bar.state === "running" || bar.state === "abandoned") return;
    const call = this.calls.get(bar.call_id!);
    if (!call) return;
    const tool = this.bars.find((known) => known.kind === "tool" && known.call_id === bar.call_id);
    const result = this.results.get(call.callId);
    // A user who changes a call allows it; if it was denied all the same, the policy did that.
    const isChanged = result?.arguments != null;
    const decision = result?.decision ?? (isChanged || result?.outcome !== "denied" ? "once" : "deny");
    this.out.push({
      kind: "decision",
      id: `decision:${call.callId}`,
      callId: call.callId,
      label: tool?.label ?? labelOf(isChanged ? withArguments(call, result.arguments!) : call),
      isAllowed: decision !== "deny" && decision !== "expired",
      isChanged,
      decision,
      platform: result?.decided_in ?? "",
      at: bar.end_at ?? bar.start_at,
    });
  }

  /** A question that belongs to no call, such as the one at a limit. Without an answer there is nothing to show. */
  private question(bar: Bar, step: StepParts | null): void {
    if (!bar.answer) return;
    this.leave(step);
    const ask = { id: "", topic: "", text: bar.question!, choices: [], options: [], at: bar.start_at, answer: bar.answer };
    this.out.push({ kind: "question", id: `question:${bar.start_at}`, ask });
  }

  private seam(bar: Bar): void {
    const before = this.bars.filter((known) => known.kind === "model" && (known.state ?? "done") === "done" && (known.end_at ?? Infinity) <= bar.start_at);
    this.out.push({
      kind: "seam",
      id: `seam:${bar.start_at}`,
      reason: bar.label,
      stoppedAt: bar.start_at,
      backAt: bar.end_at ?? bar.start_at,
      step: Math.max(0, ...before.map((known) => known.step ?? 0)),
    });
  }
}
