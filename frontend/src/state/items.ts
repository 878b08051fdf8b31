/** What a turn looks like to a reader: items on a rail, in the order in which they happened. */

import type { AttachmentPart, Bar, Failure, FilesInDoubt, FileChanges, Message, MessageSource, Outcome, ReplyDelivery, ResultPart, SavedFilesPart, SkillPart, SummaryPart, TurnState, Usage } from "../api/types";

export interface ThoughtItem {
  kind: "thought";
  id: string;
  step: number;
  text: string;
  isLive: boolean;
  isAbandoned: boolean;
  startedAt: number | null;
  endedAt: number | null;
}
export interface TextItem {
  kind: "text";
  id: string;
  step: number;
  text: string;
  isLive: boolean;
  isAbandoned: boolean;
  /** Why the attempt was cut off, where it was. */
  reason: string;
  messageId: string | null;
}
export interface AskState {
  id: string;
  topic: string;
  text: string;
  choices: string[];
  options: string[];
  at: number;
  answer: string | null;
  /** Of a call in doubt: what changed on the disk, if that was recorded. */
  files?: FilesInDoubt;
}

export const goBack = "go back and run again";
const notRun = "treat it as not run";

/** The answers in the order in which they are offered. Where files can go back, that is what the choice is about. */
/** Given by a finished sign-in, not by a press. */
export const signedIn = "signed in";

export function choicesOf(ask: AskState): string[] {
  if (!ask.choices.includes(goBack)) return ask.choices;
  const first = ["check", goBack, notRun].filter((choice) => ask.choices.includes(choice));
  return [...first, ...ask.choices.filter((choice) => !first.includes(choice))];
}
export interface CallItem {
  kind: "call";
  id: string;
  step: number;
  callId: string;
  name: string;
  /** What it runs with. */
  arguments: string;
  /** What the model asked for, where the user changed it. */
  wished: string | null;
  label: string;
  /** wished: not begun. doubt: begun, with an unknown outcome. */
  state: "wished" | "asking" | "running" | "doubt" | "ended";
  startedAt: number | null;
  endedAt: number | null;
  output: string;
  result: ResultPart | null;
  ask: AskState | null;
}

/** A call that the model wished for: neither judged nor started. */
export function wishedCall(step: number, id: string, name: string, args: string): CallItem {
  return {
    kind: "call",
    id: `call:${id}`,
    step,
    callId: id,
    name,
    arguments: args,
    wished: null,
    label: "",
    state: "wished",
    startedAt: null,
    endedAt: null,
    output: "",
    result: null,
    ask: null,
  };
}
export interface DecisionItem {
  kind: "decision";
  id: string;
  callId: string;
  label: string;
  isAllowed: boolean;
  isChanged: boolean;
  decision: string;
  /** The platform in whose chat it was decided; empty: on the page, or it is not known any more. */
  platform: string;
  at: number;
}
export interface QuestionItem {
  kind: "question";
  id: string;
  ask: AskState;
}
export interface SteerItem {
  kind: "steer";
  id: string;
  message: Message;
}
export interface SeamItem {
  kind: "seam";
  id: string;
  reason: string;
  stoppedAt: number;
  backAt: number;
  /** The last finished step, where it is known. */
  step: number | null;
}
export interface ProgressItem {
  kind: "progress";
  id: string;
  label: string;
  done: number;
  total: number | null;
}
export interface RetryItem {
  kind: "retry";
  id: string;
  reason: string;
  message: string;
  model: string;
  until: number | null;
}
export type Item =
  | ThoughtItem
  | TextItem
  | CallItem
  | DecisionItem
  | QuestionItem
  | SteerItem
  | SeamItem
  | ProgressItem
  | RetryItem;

export interface TurnView {
  id: string;
  kind: "message" | "compaction";
  state: TurnState;
  createdAt: number;
  startedAt: number | null;
  endedAt: number | null;
  /** The user's words. */
  asked: Message | null;
  items: Item[];
  bars: Bar[];
  /** Bars that are still open, by step or call or ask. */
  open: Record<string, number>;
  usage: Usage;
  missedCache: boolean;
  attempts: number;
  /** Its worker has gone and no other one has it yet; null: one has it. The number tells which worker that was. */
  releasedEpoch: number | null;
  failure: Failure | null;
  recovery: "none" | "pending" | "recovered" | "final";
  recoveredAt: number | null;
  sibling: number;
  siblings: number;
  siblingIds: string[];
  /** What it did to the workspace's files, all its steps together; null: nothing. */
  files: FileChanges | null;
  /** The chats that its answer goes to, and how far it has come. */
  replies: readonly ReplyDelivery[];
  parentId: string | null | undefined;
  model: string;
  finish: string;
  summary: SummaryPart | null;
  lastAt: number;
}

export function emptyTurn(id: string, at: number): TurnView {
  return {
    id,
    kind: "message",
    state: "queued",
    createdAt: at,
    startedAt: null,
    endedAt: null,
    asked: null,
    items: [],
    bars: [],
    open: {},
    usage: {},
    missedCache: false,
    attempts: 0,
    releasedEpoch: null,
    failure: null,
    recovery: "none",
    recoveredAt: null,
    sibling: 1,
    siblings: 1,
    siblingIds: [],
    files: null,
    replies: [],
    parentId: undefined,
    model: "",
    finish: "",
    summary: null,
    lastAt: 0,
  };
}

export function isActive(state: TurnState): boolean {
  return state === "running" || state === "waiting";
}

export function isEnded(state: TurnState): boolean {
  return state === "completed" || state === "cancelled" || state === "failed" || state === "interrupted";
}

export function textOf(message: Message | null): string {
  if (!message) return "";
  return message.parts
    .map((part) => (part.type === "text" && !part.is_abandoned ? part.text : ""))
    .filter(Boolean)
    .join("\n");
}

/** The files that the user saved before the turn; null: the message is about something else. */
export function savedIn(message: Message): SavedFilesPart | null {
  return message.parts.find((part) => part.type === "saved_files") ?? null;
}

/** The skill that the user named with a slash; null: the message is about something else. */
export function skillIn(message: Message): SkillPart | null {
  return message.parts.find((part) => part.type === "skill") ?? null;
}

/** A message that follows the user's words and is no words of its own. */
export function isNote(message: Message): boolean {
  return savedIn(message) !== null || skillIn(message) !== null;
}

/** The skills of a turn, each with the version that was used. */
export function skillsOf(turn: TurnView): { name: string; digest: string }[] {
  const found = new Map<string, { name: string; digest: string }>();
  for (const item of turn.items) {
    const named = item.kind === "steer" ? skillIn(item.message) : null;
    const read = item.kind === "call" && item.name === "skill" ? (item.result?.display as { name?: string; digest?: string } | null) : null;
    const used = named ?? (read?.name && read.digest ? { name: read.name, digest: read.digest } : null);
    if (used) found.set(`${used.name} ${used.digest}`, { name: used.name, digest: used.digest });
  }
  return [...found.values()];
}

/** The chat that a message came from; null: it was written here. */
export function sourceOf(message: Message | null): MessageSource | null {
  for (const part of message?.parts ?? []) {
    if (part.type === "text" && part.source) return part.source;
  }
  return null;
}

export function attachmentsOf(message: Message | null): AttachmentPart[] {
  return message ? message.parts.filter((part) => part.type === "attachment") : [];
}

export function plus(left: Usage, right: Usage | undefined): Usage {
  if (!right) return left;
  const sum: Usage = { ...left };
  for (const key of ["input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "cost_usd", "saved_usd"] as const) {
    if (right[key] != null) sum[key] = (left[key] ?? 0) + right[key];
  }
  return sum;
}

export function outcomeOf(result: ResultPart): Outcome {
  return result.outcome ?? "ok";
}

/** The answer's words: what "copy" copies. */
export function answerOf(turn: TurnView): string {
  return turn.items
    .filter((item): item is TextItem => item.kind === "text" && !item.isAbandoned)
    .map((item) => item.text.trim())
    .filter(Boolean)
    .join("\n\n");
}

/** The asks that wait for the user, in order. */
export function openAsks(turn: TurnView): AskState[] {
  const asks: AskState[] = [];
  for (const item of turn.items) {
    const ask = item.kind === "call" || item.kind === "question" ? item.ask : null;
    if (ask && ask.answer === null) asks.push(ask);
  }
  return asks;
}
