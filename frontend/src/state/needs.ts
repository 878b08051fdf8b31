/** What needs the user: rows of the page "Needs you", made from the server's answer. */

import type { Ask, Budget, Needs, Job, TroubledSchedule, UndecidedPart } from "../api/types";
import type { AskState, CallItem } from "./items";
import { wishedCall } from "./items";
import { partsOf, type Part } from "./tools";

export type NeedKind = "approval" | "question" | "doubt" | "limit" | "budget" | "send" | "job" | "schedule";

/** What became of a row while it was on the screen. */
export interface Settled {
  /** Empty: it went away without an answer. */
  answer: string;
  by: string;
  at: number;
}

export interface Need {
  id: string;
  kind: NeedKind;
  at: number;
  /** Of an ask; of a budget those of every turn that waits for it, oldest first. */
  asks: Ask[];
  send?: UndecidedPart;
  job?: Job;
  schedule?: TroubledSchedule;
  settled: Settled | null;
}

const kinds: Record<string, NeedKind> = { approval: "approval", doubt: "doubt", limit: "limit", repeat: "limit", budget: "budget" };
const linesMax = 8;
/** So many characters fill about as many lines of a box. */
const charsMax = 800;

/** Work stops until it is answered. */
export function holdsUp(need: Need): boolean {
  return need.asks.length > 0;
}

export function needsOf(answer: Needs): Need[] {
  const rows: Need[] = [];
  const budgets = new Map<string, Need>();
  for (const ask of [...answer.asks].sort((left, right) => left.created_at - right.created_at)) {
    const kind = kinds[ask.topic] ?? "question";
    const budget = kind === "budget" ? ask.budget?.budget_id : undefined;
    const known = budget && budgets.get(budget);
    if (known) {
      known.asks.push(ask);
      continue;
    }
    const row: Need = { id: budget ? `budget:${budget}` : ask.id, kind, at: ask.created_at, asks: [ask], settled: null };
    if (budget) budgets.set(budget, row);
    rows.push(row);
  }
  for (const send of answer.sends) rows.push({ id: send.id, kind: "send", at: send.changed_at, asks: [], send, settled: null });
  for (const job of answer.jobs) rows.push({ id: job.id, kind: "job", at: job.ended_at ?? job.started_at, asks: [], job, settled: null });
  for (const schedule of answer.schedules) rows.push({ id: schedule.id, kind: "schedule", at: schedule.at, asks: [], schedule, settled: null });
  return inOrder(rows);
}

/** Those that hold work up first, each group with the oldest first. */
function inOrder(rows: Need[]): Need[] {
  return rows.sort((left, right) => Number(holdsUp(right)) - Number(holdsUp(left)) || left.at - right.at || (left.id < right.id ? -1 : 1));
}

/** The rows as they are now. One that has gone stays as one line, with what became of it, so that nothing jumps. */
export function merge(before: readonly Need[], now: readonly Need[], answered: ReadonlyMap<string, Ask>, at: number): Need[] {
  const present = new Set(now.map((row) => row.id));
  const gone = before.filter((row) => !present.has(row.id)).map((row) => ({ ...row, settled: row.settled?.answer ? row.settled : settledOf(row, answered, at) }));
  return inOrder([...now, ...gone]);
}

function settledOf(row: Need, answered: ReadonlyMap<string, Ask>, at: number): Settled {
  const found = row.asks.map((ask) => answered.get(ask.id)).find((ask) => ask?.answer != null);
  return found ? { answer: found.answer!, by: found.by ?? "", at: found.answered_at ?? at } : (row.settled ?? { answer: "", by: "", at });
}

/** Answers that a person gave, the latest first. */
export function byPeople(answered: readonly Ask[]): Ask[] {
  return answered.filter((ask) => ask.answer != null && !["everturn", "budget", "expiry"].includes(ask.by ?? ""));
}

/** The platform on which it was answered; empty: on a page or over the API. */
export function platformOf(by: string): string {
  return by.startsWith("chat:") ? by.slice(5) : "";
}

/** The session that the user opens: of a delegate's ask, the one that the user has started. */
export function sessionOf(need: Need): string | null {
  const ask = need.asks[0];
  if (ask) return ask.root_session ?? ask.session_id;
  return need.send?.session_id ?? need.job?.session_id ?? need.schedule?.session_id ?? null;
}

export function askState(ask: Ask): AskState {
  const choices = ask.choices ?? [];
  return {
    id: ask.id,
    topic: ask.topic,
    text: ask.text ?? "",
    choices,
    options: ask.topic === "approval" ? choices : [],
    at: ask.created_at,
    answer: ask.answer ?? null,
    ...(ask.files ? { files: ask.files } : {}),
  };
}

export function callOf(ask: Ask): CallItem {
  return { ...wishedCall(0, ask.call_id ?? ask.id, ask.name ?? "", ask.arguments ?? ""), label: ask.label ?? "" };
}

/** The text that is approved: the whole call, or what follows the first line of a question. */
export function textOf(need: Need): Part[] {
  const ask = need.asks[0];
  if (!ask) return [];
  if (need.kind === "approval") return partsOf(callOf(ask));
  if (need.kind !== "question") return [];
  const about = (ask.text ?? "").split("\n").slice(1).join("\n").trim();
  return about ? [{ name: "", text: about }] : [];
}

export function linesOf(parts: readonly Part[]): number {
  return parts.reduce((sum, part) => sum + part.text.split("\n").length, 0);
}

/** It is folded until the user unfolds it. Nothing is allowed before that. */
export function isLong(parts: readonly Part[]): boolean {
  return linesOf(parts) > linesMax || parts.reduce((sum, part) => sum + part.text.length, 0) > charsMax;
}

/** A budget's shares of what may be spent, for a bar. */
export function sharesOf(budget: Budget): { whole: number; spent: number; reserved: number } {
  const whole = budget.amount + budget.extra;
  const spent = Math.min(1, whole ? budget.spent / whole : 1);
  return { whole, spent, reserved: Math.min(1 - spent, whole ? budget.reserved / whole : 0) };
}
