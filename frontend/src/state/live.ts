/** One event into a turn: a pure function. It mirrors the server's fold, so that a reload shows the same. */

import type { Bar, Payload, ResultPart, SessionEvent, TurnState } from "../api/types";
import { labelOf } from "./tools";
import { netChanges } from "./tree";
import { plus, wishedCall, type AskState, type CallItem, type Item, type TurnView } from "./items";

export const outputCharactersMax = 60_000;
export const outputLinesMax = 500;

type Kind = Payload["kind"];
type Of<K extends Kind> = Extract<Payload, { kind: K }>;
type Handler<K extends Kind> = (turn: TurnView, payload: Of<K>, at: number) => TurnView;

/** A kind that a newer server has added changes nothing here. */
export function feed(turn: TurnView, event: SessionEvent): TurnView {
  const handler = handlers[event.event.kind] as Handler<Kind> | undefined;
  if (!handler) return turn;
  const next = handler(turn, event.event as never, event.at);
  return next.lastAt === event.at ? next : { ...next, lastAt: event.at };
}

const unchanged = (turn: TurnView): TurnView => turn;

/** Every kind that the server's description names: one that is missing does not compile. */
const handlers: { [K in Kind]: Handler<K> } = {
  // These are for the conversation.
  "turn.accepted": unchanged,
  "session.changed": unchanged,
  snapshot: unchanged,
  "files.restored": unchanged,
  "reply.sent": unchanged,
  "reply.unknown": unchanged,
  "turn.started": (turn, _payload, at) => ({ ...turn, state: "running", startedAt: turn.startedAt ?? at }),
  "step.started": stepStarted,
  "text.delta": textDelta,
  "reasoning.delta": reasoningDelta,
  "step.finished": stepFinished,
  "step.abandoned": stepAbandoned,
  usage: stepUsage,
  progress: progress,
  "tool.started": toolStarted,
  "tool.output": toolOutput,
  "tool.finished": toolFinished,
  "files.changed": filesChanged,
  "files.moved": unchanged,
  // A job outlives its turn, so its events belong to none.
  "job.started": unchanged,
  "job.output": unchanged,
  "job.ended": unchanged,
  // A delegate has a card of its own; the result of the call follows its end.
  "delegate.started": unchanged,
  "delegate.ended": unchanged,
  "approval.requested": approvalRequested,
  "approval.resolved": approvalResolved,
  // The question that comes with it is what is shown.
  "budget.reached": unchanged,
  "question.asked": questionAsked,
  "question.answered": questionAnswered,
  "turn.waiting": (turn) => ({ ...turn, state: "waiting" }),
  "turn.resumed": turnResumed,
  "turn.completed": (turn, payload, at) => end({ ...turn, usage: payload.usage ?? turn.usage }, "completed", at),
  "turn.cancelled": (turn, _payload, at) => end(turn, "cancelled", at),
  "turn.failed": (turn, payload, at) => end({ ...turn, failure: payload.failure }, "failed", at),
  "turn.interrupted": (turn, payload, at) =>
    end(
      { ...turn, failure: payload.failure, recovery: (payload.recovery ?? "final") as TurnView["recovery"] },
      "interrupted",
      at,
    ),
  "message.added": (turn, payload) => {
    const summary = payload.message.parts.find((part) => part.type === "summary");
    if (summary) return { ...turn, summary };
    return { ...turn, items: [...closeItems(turn.items), { kind: "steer", id: payload.message.id, message: payload.message }] };
  },
};

export function foldedKinds(): string[] {
  return Object.keys(handlers);
}

// --- steps --------------------------------------------------------------------------------------

function stepStarted(turn: TurnView, payload: Of<"step.started">, at: number): TurnView {
  const items = closeItems(turn.items).filter((item) => item.kind !== "retry" && item.kind !== "progress");
  const bar: Bar = { kind: "model", label: payload.model, start_at: at, state: "running", step: payload.step };
  return openBar({ ...turn, items, model: payload.model }, `step:${payload.step}`, bar);
}

function textDelta(turn: TurnView, payload: Of<"text.delta">, at: number): TurnView {
  const items = [...turn.items];
  const last = items[items.length - 1];
  if (last?.kind === "text" && last.step === payload.step && !last.isAbandoned) {
    items[items.length - 1] = { ...last, text: last.text + payload.text, isLive: true };
  } else {
    closeInto(items);
    items.push({
      kind: "text",
      id: `text:${payload.step}:${items.length}`,
      step: payload.step,
      text: payload.text,
      isLive: true,
      isAbandoned: false,
      reason: "",
      messageId: null,
    });
  }
  return firstToken({ ...turn, items }, payload.step, at);
}

function reasoningDelta(turn: TurnView, payload: Of<"reasoning.delta">, at: number): TurnView {
  const items = [...turn.items];
  const last = items[items.length - 1];
  if (last?.kind === "thought" && last.step === payload.step && !last.isAbandoned) {
    items[items.length - 1] = { ...last, text: last.text + payload.text, isLive: true, endedAt: at };
  } else {
    closeInto(items);
    const open = turn.open[`step:${payload.step}`];
    items.push({
      kind: "thought",
      id: `thought:${payload.step}:${items.length}`,
      step: payload.step,
      text: payload.text,
      isLive: true,
      isAbandoned: false,
      startedAt: open === undefined ? at : turn.bars[open]!.start_at,
      endedAt: at,
    });
  }
  return changeBar(firstToken({ ...turn, items }, payload.step, at), `step:${payload.step}`, {
    thought_until: at,
  });
}

function stepFinished(turn: TurnView, payload: Of<"step.finished">, at: number): TurnView {
  const items = closeItems(turn.items);
  for (const call of payload.calls ?? []) {
    items.push(wishedCall(payload.step, call.id, call.name, call.arguments));
  }
  const isShort = payload.finish === "length" || payload.finish === "filtered";
  const said: TurnView = { ...turn, items, finish: payload.finish };
  const key = `step:${payload.step}`;
  return closeBar(isShort ? changeBar(said, key, { finish: payload.finish }) : said, key, at, "done");
}

function stepAbandoned(turn: TurnView, payload: Of<"step.abandoned">, at: number): TurnView {
  let items = closeItems(turn.items);
  if (!payload.continues) {
    items = items.map((item) =>
      (item.kind === "text" || item.kind === "thought") && item.step === payload.step && !item.isAbandoned
        ? { ...item, isAbandoned: true, ...(item.kind === "text" ? { reason: payload.reason } : {}) }
        : item,
    );
  }
  if (payload.retry_in_ms != null) {
    items.push({
      kind: "retry",
      id: `retry:${payload.step}:${at}`,
      reason: payload.reason,
      message: payload.message ?? "",
      model: payload.model ?? "",
      until: at + payload.retry_in_ms,
    });
  }
  return closeBar({ ...turn, items }, `step:${payload.step}`, at, "abandoned");
}

function stepUsage(turn: TurnView, payload: Of<"usage">): TurnView {
  const bars = [...turn.bars];
  for (let index = bars.length - 1; index >= 0; index -= 1) {
    if (bars[index]!.kind === "model" && bars[index]!.step === payload.step) {
      bars[index] = { ...bars[index]!, usage: payload.usage, ...(payload.missed_cache ? { missed_cache: true } : {}) };
      break;
    }
  }
  return {
    ...turn,
    bars,
    usage: plus(turn.usage, payload.usage),
    missedCache: turn.missedCache || !!payload.missed_cache,
  };
}

function progress(turn: TurnView, payload: Of<"progress">): TurnView {
  const items: Item[] = turn.items.filter((item) => item.kind !== "progress");
  items.push({
    kind: "progress",
    id: "progress",
    label: payload.label,
    done: payload.done ?? 0,
    total: payload.total ?? null,
  });
  return { ...turn, items };
}

// --- calls --------------------------------------------------------------------------------------

function toolStarted(turn: TurnView, payload: Of<"tool.started">, at: number): TurnView {
  if (!turn.items.some((item) => item.kind === "call" && item.callId === payload.call_id)) return turn;
  const next = changeCall(turn, payload.call_id, (call) => ({
    ...call,
    state: "running",
    label: payload.label || call.label,
    startedAt: at,
    output: "",
    ask: call.ask?.answer === null ? null : call.ask,
  }));
  return openBar(relabel(next, payload), payload.call_id, {
    kind: "tool",
    label: payload.label || payload.name,
    start_at: at,
    state: "running",
    step: payload.step,
    call_id: payload.call_id,
  });
}

/** A changed call has its new name from the server only now; the decision about it is called the same. */
function relabel(turn: TurnView, payload: Of<"tool.started">): TurnView {
  if (!payload.label) return turn;
  const items = turn.items.map((item): Item =>
    item.kind === "decision" && item.isChanged && item.callId === payload.call_id ? { ...item, label: payload.label! } : item,
  );
  return { ...turn, items };
}

function toolOutput(turn: TurnView, payload: Of<"tool.output">): TurnView {
  return changeCall(turn, payload.call_id, (call) => ({ ...call, output: tail(call.output + payload.text) }));
}

function toolFinished(turn: TurnView, payload: Of<"tool.finished">, at: number): TurnView {
  const known = turn.items.find((item): item is CallItem => item.kind === "call" && item.callId === payload.call_id);
  if (!known || known.result) return turn;
  const result: ResultPart = {
    type: "result",
    call_id: payload.call_id,
    name: payload.name,
    text: payload.text,
    outcome: payload.outcome,
    artifact: payload.artifact ?? null,
    display: payload.display ?? null,
    duration_ms: known.startedAt === null ? null : Math.max(0, at - known.startedAt),
    is_untrusted: payload.is_untrusted ?? false,
    ...(payload.not_kept ? { not_kept: payload.not_kept } : {}),
    ...(known.wished === null ? {} : { arguments: known.arguments }),
    // A result that was given for a call in doubt is not the call's own, and has none of its output.
    ...((known.state === "doubt" || payload.outcome === "unknown") && known.output ? { output: known.output } : {}),
  };
  const state = payload.outcome === "ok" ? "done" : payload.outcome === "unknown" ? "unknown" : "failed";
  const next = changeCall(turn, payload.call_id, (call) => ({
    ...call,
    state: "ended",
    endedAt: at,
    result,
    ask: call.ask && call.ask.answer === null ? null : call.ask,
  }));
  return closeBar(next, payload.call_id, at, state);
}

function filesChanged(turn: TurnView, payload: Of<"files.changed">): TurnView {
  // What is found before the first call is what the user did after the turn before.
  const hasRun = turn.bars.some((bar) => bar.kind === "tool");
  if (payload.call_id == null && !hasRun) return turn;
  return { ...turn, files: netChanges(turn.files, payload.changes ?? [], payload.changes_total ?? 0) };
}

function approvalRequested(turn: TurnView, payload: Of<"approval.requested">, at: number): TurnView {
  const ask: AskState = {
    id: payload.ask_id,
    topic: "approval",
    text: payload.reason,
    choices: [],
    options: payload.options ?? ["once", "session", "always", "deny"],
    at,
    answer: null,
  };
  // Asked again under other terms: the earlier decision does not hold.
  const items = turn.items.filter((item) => item.id !== `decision:${payload.call_id}`);
  const next = changeCall({ ...turn, items }, payload.call_id, (call) => ({
    ...call,
    state: "asking",
    label: payload.label || call.label,
    ask,
  }));
  return openBar(next, payload.ask_id, {
    kind: "wait",
    label: "Approval",
    start_at: at,
    state: "running",
    call_id: payload.call_id,
  });
}

function approvalResolved(turn: TurnView, payload: Of<"approval.resolved">, at: number): TurnView {
  const items: Item[] = [];
  for (const known of turn.items) {
    if (known.kind === "call" && known.callId === payload.call_id) {
      const item = payload.arguments == null ? known : withArguments(known, payload.arguments);
      items.push({
        kind: "decision",
        id: `decision:${payload.call_id}`,
        callId: payload.call_id,
        label: item.wished === null ? item.label || item.name : labelOf(item),
        isAllowed: payload.decision !== "deny" && payload.decision !== "expired",
        isChanged: item.wished !== null,
        decision: payload.decision,
        platform: payload.by.startsWith("chat:") ? payload.by.slice("chat:".length) : "",
        at,
      });
      const ask = item.ask ? { ...item.ask, answer: payload.decision } : null;
      items.push({ ...item, state: item.state === "asking" ? "wished" : item.state, ask });
    } else {
      items.push(known);
    }
  }
  return closeBar({ ...turn, items }, payload.ask_id, at, "done");
}

/** The call with what the user put in place of its arguments; its label was for what was asked. */
export function withArguments(call: CallItem, given: string): CallItem {
  return { ...call, arguments: given, wished: call.arguments, label: "" };
}

function questionAsked(turn: TurnView, payload: Of<"question.asked">, at: number): TurnView {
  const ask: AskState = {
    id: payload.ask_id,
    topic: payload.topic ?? "question",
    text: payload.text,
    choices: payload.choices ?? [],
    options: [],
    at,
    answer: null,
    ...(payload.files ? { files: payload.files } : {}),
  };
  const isOnCall = turn.items.some((item) => item.kind === "call" && item.callId === payload.call_id);
  const next: TurnView = isOnCall
    ? changeCall(turn, payload.call_id!, (call) => ({
        ...call,
        state: ask.topic === "doubt" ? "doubt" : "asking",
        ask,
      }))
    : { ...turn, items: [...closeItems(turn.items), { kind: "question", id: `ask:${payload.ask_id}`, ask }] };
  return openBar(next, payload.ask_id, {
    kind: "wait",
    label: "Question",
    start_at: at,
    state: "running",
    call_id: payload.call_id ?? null,
    ...(isOnCall ? {} : { question: firstLine(payload.text) }),
  });
}

function questionAnswered(turn: TurnView, payload: Of<"question.answered">, at: number): TurnView {
  const items = turn.items.map((item): Item => {
    if ((item.kind !== "call" && item.kind !== "question") || item.ask?.id !== payload.ask_id) return item;
    const ask = { ...item.ask, answer: payload.answer };
    return item.kind === "call"
      ? { ...item, ask, state: item.state === "asking" ? "wished" : item.state }
      : { ...item, ask };
  });
  const isOnCall = turn.items.some((item) => item.kind === "call" && item.ask?.id === payload.ask_id);
  const next = { ...turn, items };
  return closeBar(isOnCall ? next : changeBar(next, payload.ask_id, { answer: payload.answer }), payload.ask_id, at, "done");
}

export function firstLine(text: string): string {
  return text.split("\n", 1)[0]!;
}

// --- the turn -----------------------------------------------------------------------------------

function turnResumed(turn: TurnView, payload: Of<"turn.resumed">, at: number): TurnView {
  // Events from before the release are replayed after the turn's row was read.
  const releasedEpoch = payload.epoch > (turn.releasedEpoch ?? -1) ? null : turn.releasedEpoch;
  const running: TurnView = { ...turn, state: "running", endedAt: null, failure: null, recovery: "none", releasedEpoch };
  if (payload.reason === "answered") return running;
  const stopped = payload.stopped_at ?? (turn.lastAt || at);
  let next = closeAllBars(running, stopped);
  const items = closeItems(next.items).map((item): Item =>
    item.kind === "call" && item.state === "running" ? { ...item, state: "doubt" } : item,
  );
  items.push({
    kind: "seam",
    id: `seam:${stopped}`,
    reason: payload.reason,
    stoppedAt: stopped,
    backAt: at,
    step: payload.step ?? 0,
  });
  next = { ...next, items, attempts: payload.attempt ?? turn.attempts };
  return { ...next, bars: [...next.bars, { kind: "down", label: payload.reason, start_at: stopped, end_at: at }] };
}

function end(turn: TurnView, state: TurnState, at: number): TurnView {
  const next = closeAllBars(turn, at);
  const items = closeItems(next.items)
    .filter((item) => item.kind !== "progress" && item.kind !== "retry" && !(item.kind === "question" && item.ask.answer === null))
    .map((item): Item => (item.kind === "call" && !item.result ? withoutResult(item) : item));
  return { ...next, items, state, endedAt: at };
}

/** A call that the end of the turn left without a result gets the one that is true of it. */
export function withoutResult(call: CallItem): CallItem {
  const outcome = call.startedAt === null ? "cancelled" : "unknown";
  const result: ResultPart = { type: "result", call_id: call.callId, name: call.name, text: "", outcome };
  if (call.output) result.output = call.output;
  return { ...call, state: "ended", result, ask: call.ask?.answer === null ? null : call.ask };
}

// --- small parts --------------------------------------------------------------------------------

/** Something new begins: what was open is closed, and what was being made ready is ready. */
function closeInto(items: Item[]): void {
  const ready = items.findIndex((item) => item.kind === "progress");
  if (ready >= 0) items.splice(ready, 1);
  const last = items[items.length - 1];
  if (last?.kind === "text" && last.isLive) items[items.length - 1] = { ...last, isLive: false };
  if (last?.kind === "thought" && last.isLive) items[items.length - 1] = { ...last, isLive: false };
}

function closeItems(items: Item[]): Item[] {
  return items.map((item) =>
    (item.kind === "text" || item.kind === "thought") && item.isLive ? { ...item, isLive: false } : item,
  );
}

function changeCall(turn: TurnView, callId: string, change: (call: CallItem) => CallItem): TurnView {
  return {
    ...turn,
    items: turn.items.map((item) => (item.kind === "call" && item.callId === callId ? change(item) : item)),
  };
}

function openBar(turn: TurnView, key: string, bar: Bar): TurnView {
  return { ...turn, bars: [...turn.bars, bar], open: { ...turn.open, [key]: turn.bars.length } };
}

function changeBar(turn: TurnView, key: string, change: Partial<Bar>): TurnView {
  const index = turn.open[key];
  if (index === undefined) return turn;
  const bars = [...turn.bars];
  bars[index] = { ...bars[index]!, ...change };
  return { ...turn, bars };
}

function closeBar(turn: TurnView, key: string, at: number, state: Bar["state"]): TurnView {
  const next = changeBar(turn, key, { end_at: at, state });
  if (!(key in turn.open)) return next;
  const open = { ...turn.open };
  delete open[key];
  return { ...next, open };
}

function closeAllBars(turn: TurnView, at: number): TurnView {
  const calls = new Set(turn.items.map((item) => (item.kind === "call" ? item.callId : "")));
  let next = turn;
  for (const key of Object.keys(turn.open)) next = closeBar(next, key, at, calls.has(key) ? "unknown" : "abandoned");
  return next;
}

function firstToken(turn: TurnView, step: number, at: number): TurnView {
  const index = turn.open[`step:${step}`];
  if (index === undefined || turn.bars[index]!.first_token_at != null) return turn;
  return changeBar(turn, `step:${step}`, { first_token_at: at });
}

export function tail(text: string): string {
  if (text.length <= outputCharactersMax) return text;
  return text.slice(text.length - outputCharactersMax);
}
