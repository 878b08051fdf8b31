/** Delegates as a person looks at them: what each is at, together what they used, and when they worked. */

import type { Bar, Delegate, Usage } from "../api/types";
import { isEnded, plus } from "./items";

export type DelegateState = "queued" | "working" | "waiting" | "approval" | "stopping" | "finished" | "failed" | "stopped" | "interrupted";

export function stateOf(delegate: Delegate): DelegateState {
  if (isEnded(delegate.state)) {
    if (delegate.state === "completed") return "finished";
    return delegate.state === "cancelled" ? "stopped" : (delegate.state as "failed" | "interrupted");
  }
  if (delegate.is_stopping) return "stopping";
  if (delegate.asks) return "approval";
  if (delegate.state === "queued") return "queued";
  return delegate.state === "waiting" ? "waiting" : "working";
}

export function isAtWork(delegate: Delegate): boolean {
  return !isEnded(delegate.state);
}

export interface Counts {
  finished: number;
  working: number;
  waiting: number;
  failed: number;
  stopped: number;
  queued: number;
}

export function countsOf(delegates: readonly Delegate[]): Counts {
  const counts: Counts = { finished: 0, working: 0, waiting: 0, failed: 0, stopped: 0, queued: 0 };
  for (const delegate of delegates) {
    const state = stateOf(delegate);
    if (state === "approval") counts.waiting += 1;
    else if (state === "waiting" || state === "working" || state === "stopping") counts.working += 1;
    else if (state === "interrupted") counts.failed += 1;
    else counts[state] += 1;
  }
  return counts;
}

/** The usage of a turn and of all delegates under it. */
export function usageOf(delegates: readonly Delegate[], own: Usage = {}): Usage {
  return delegates.reduce((sum, delegate) => plus(sum, delegate.usage), own);
}

/** From the first start to the last end. */
export function spanOf(delegates: readonly Delegate[], now: number): { from: number; to: number } {
  const from = Math.min(...delegates.map((delegate) => delegate.created_at));
  const to = Math.max(from + 1, ...delegates.map((delegate) => delegate.ended_at ?? now));
  return { from, to };
}

export function workedMs(delegate: Delegate, now: number): number {
  return delegate.started_at === null ? 0 : Math.max(0, (delegate.ended_at ?? now) - delegate.started_at);
}

export interface Piece {
  left: number;
  width: number;
  look: string;
}

/** When a delegate waited for its turn, thought, worked and waited for the user, in percent of the span. */
export function piecesOf(delegate: Delegate, span: { from: number; to: number }, now: number): Piece[] {
  const place = (at: number) => Math.max(0, Math.min(100, (100 * (at - span.from)) / (span.to - span.from)));
  const end = delegate.ended_at ?? now;
  const piece = (from: number, to: number, look: string): Piece => ({ left: place(from), width: Math.max(0.5, place(to) - place(from)), look });
  const begun = delegate.started_at ?? end;
  const pieces: Piece[] = place(begun) - place(delegate.created_at) >= 1 ? [piece(delegate.created_at, begun, "ghost")] : [];
  const looks: Partial<Record<Bar["kind"], string>> = { model: "m", tool: "", wait: "w", down: "" };
  for (const bar of delegate.timeline) {
    if (bar.kind === "down") continue;
    const look = bar.state === "failed" ? "bad" : bar.state === "abandoned" ? "ab" : (looks[bar.kind] ?? "");
    pieces.push(piece(bar.start_at, bar.end_at ?? end, look));
  }
  return pieces;
}

/** How long delegates have waited for the user. */
export function waitedMs(delegates: readonly Delegate[], now: number): number {
  const waits = delegates.flatMap((delegate) => delegate.timeline.filter((bar) => bar.kind === "wait").map((bar) => (bar.end_at ?? delegate.ended_at ?? now) - bar.start_at));
  return waits.reduce((sum, ms) => sum + Math.max(0, ms), 0);
}

/** What a delegate at work is doing: a call that runs, one that has run, or nothing but thinking. */
export function doingOf(delegate: Delegate): { how: "run" | "ran" | "thinks"; what: string } {
  const bars = delegate.timeline.filter((bar) => bar.kind === "tool");
  const last = bars[bars.length - 1];
  if (!last) return { how: "thinks", what: "" };
  return { how: last.end_at == null ? "run" : "ran", what: last.label };
}

/** The first line of what a delegate does or said, without the marks of Markdown. */
export function activityOf(delegate: Delegate): string {
  const line = delegate.activity.split("\n").find((one) => one.trim()) ?? "";
  return line.replace(/^\s*(?:#{1,6}|[-*>])\s+/, "").replace(/[*_`]{1,3}([^*_`]+)[*_`]{1,3}/g, "$1").trim();
}
