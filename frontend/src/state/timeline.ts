/** A turn's bars as a picture: places in percent, words, and what a restart did. */

import type { Bar, Delegate } from "../api/types";
import { duration, durationShort, timeWithSeconds } from "../text/format";
import type { IconName } from "../views/icons";
import { words } from "../words";
import { piecesOf, workedMs } from "./delegates";
import type { TurnView } from "./items";
import { lookOf } from "./tools";

export interface Row {
  label: string;
  title: string;
  icon: IconName;
  value: string;
  pieces: { left: number; width: number; look: string }[];
  /** What a click scrolls to: a call, or a step. */
  target: string;
  /** Of a delegate: its session, which a click opens, and how far below the turn it is. */
  session?: string;
  depth?: number;
}

export interface Picture {
  elapsedMs: number;
  rows: Row[];
  gaps: { left: number; width: number }[];
  marks: { at: number; label: string }[];
  table: { label: string; start: string; value: string; state: string }[];
  has: { tool: boolean; wait: boolean; unknown: boolean; abandoned: boolean; queued: boolean };
  restart: { stoppedAt: number; backAt: number; kept: number; again: number } | null;
}

export function drawn(turn: TurnView, now: number, delegates: readonly Delegate[] = []): Picture {
  const bars = turn.bars;
  const from = Math.min(turn.startedAt ?? turn.createdAt, ...bars.map((bar) => bar.start_at));
  const to = Math.max(now, from + 1, ...bars.map((bar) => bar.end_at ?? 0), ...delegates.map((delegate) => delegate.ended_at ?? now));
  const span = to - from;
  const place = (at: number) => Math.max(0, Math.min(100, (100 * (at - from)) / span));
  const seen = new Set<number>();
  const rows: Row[] = [];
  for (const bar of bars) {
    if (bar.kind === "down") continue;
    const isAgain = bar.kind === "model" && bar.step != null && seen.has(bar.step);
    if (bar.kind === "model" && bar.step != null) seen.add(bar.step);
    const own = delegates.filter((delegate) => bar.kind === "tool" && delegate.parent_turn === turn.id && delegate.call_id === bar.call_id);
    // The delegates say more than that the call waited for them.
    if (own.length) rows.push(...rowsOf(own, delegates, { from, to }, now));
    else rows.push(row(turn, bar, isAgain, to, place));
  }
  const downs = bars.filter((bar) => bar.kind === "down");
  return {
    elapsedMs: (turn.endedAt ?? now) - (turn.startedAt ?? turn.createdAt),
    rows,
    gaps: downs.map((bar) => ({ left: place(bar.start_at), width: place(bar.end_at ?? to) - place(bar.start_at) })),
    marks: marks(span),
    table: bars.map((bar) => ({
      label: nameOf(turn, bar, false),
      start: timeWithSeconds(bar.start_at),
      value: bar.end_at ? duration(bar.end_at - bar.start_at) : "",
      state: bar.state ?? "done",
    })),
    has: {
      tool: bars.some((bar) => bar.kind === "tool"),
      wait: bars.some((bar) => bar.kind === "wait") || rows.some((known) => known.pieces.some((piece) => piece.look === "w")),
      queued: rows.some((known) => known.pieces.some((piece) => piece.look === "ghost")),
      unknown: rows.some((known) => known.pieces.some((piece) => piece.look === "dbt")),
      abandoned: bars.some((bar) => bar.state === "abandoned" && bar.kind === "model"),
    },
    restart: restart(bars, downs[downs.length - 1]),
  };
}

/** Delegates and, under each, its own. */
function rowsOf(delegates: readonly Delegate[], all: readonly Delegate[], span: { from: number; to: number }, now: number, depth = 0): Row[] {
  return delegates.flatMap((delegate) => [
    {
      label: delegate.name,
      title: delegate.name,
      icon: "split" as const,
      value: durationShort(workedMs(delegate, now)),
      pieces: piecesOf(delegate, span, now),
      target: delegate.call_id,
      session: delegate.id,
      depth,
    },
    ...rowsOf(all.filter((other) => other.parent_session === delegate.id), all, span, now, depth + 1),
  ]);
}

function row(turn: TurnView, bar: Bar, isAgain: boolean, to: number, place: (at: number) => number): Row {
  const end = bar.end_at ?? to;
  const left = place(bar.start_at);
  const width = Math.max(0.6, place(end) - left);
  const call = turn.items.find((item) => item.kind === "call" && item.callId === bar.call_id);
  const isUnknown = bar.state === "unknown" || (bar.kind === "tool" && call?.kind === "call" && call.state === "doubt");
  const icon: IconName =
    bar.kind === "model"
      ? isAgain
        ? "rotate-cw"
        : "message-square"
      : bar.kind === "wait"
        ? bar.label === "Approval"
          ? "shield"
          : "circle-help"
        : isUnknown
          ? "circle-help"
          : lookOf(call?.kind === "call" ? call.name : bar.label).icon;
  const step = turn.items.find((item) => (item.kind === "text" || item.kind === "thought") && item.step === bar.step);
  return {
    label: nameOf(turn, bar, isAgain),
    title: bar.label,
    icon,
    value: isUnknown ? "?" : durationShort(end - bar.start_at),
    pieces: pieces(isUnknown ? { ...bar, state: "unknown" } : bar, left, width, place),
    target: bar.call_id ?? step?.id ?? "",
  };
}

function pieces(bar: Bar, left: number, width: number, place: (at: number) => number): Row["pieces"] {
  if (bar.state === "abandoned" && bar.kind === "model") return [{ left, width, look: "ab" }];
  if (bar.state === "unknown") return [{ left, width, look: "dbt" }];
  if (bar.kind === "wait") return [{ left, width, look: "w" }];
  if (bar.kind === "tool") return [{ left, width, look: bar.state === "failed" ? "bad" : "" }];
  if (bar.thought_until == null) return [{ left, width, look: "m" }];
  const thought = Math.max(0, Math.min(width, place(bar.thought_until) - left));
  return [
    { left, width: thought, look: "th" },
    { left: left + thought, width: width - thought, look: "m" },
  ];
}

function nameOf(turn: TurnView, bar: Bar, isAgain: boolean): string {
  if (bar.kind === "model") return isAgain ? words.askedAgain : words.modelCall(bar.step ?? 1);
  if (bar.kind === "wait") return bar.label === "Approval" ? words.approvalWait : words.questionWait;
  if (bar.kind === "down") return words.serverDown;
  const call = turn.items.find((item) => item.kind === "call" && item.callId === bar.call_id);
  const verb = call?.kind === "call" ? lookOf(call.name).verb : "run";
  // Short: a file's name, a command's first word or two.
  if (verb === "read" || verb === "edit" || verb === "write") return bar.label.split("/").pop() || bar.label;
  return verb === "run" ? program(bar.label) : bar.label;
}

/** A command's program, with the words after it that still fit; the whole is in the title. */
function program(command: string): string {
  const [first = "", ...rest] = command.replace(/^(sudo\s+|\w+=\S*\s+)+/, "").split(/\s+/);
  let name = first.split("/").pop() || command;
  for (const word of rest) {
    if (!/^[a-z][\w-]*$/.test(word) || name.length + word.length > 12) break;
    name += ` ${word}`;
  }
  return name;
}

/** Round marks on the axis: three or four of them. */
function marks(span: number): Picture["marks"] {
  const steps = [100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 864e5];
  const step = steps.find((value) => span / value <= 4.5) ?? Math.ceil(span / 3);
  const out = [{ at: 0, label: "0" }];
  for (let at = step; at <= span * 0.97; at += step) out.push({ at: (100 * at) / span, label: durationShort(at) });
  return out;
}

function restart(bars: Bar[], down: Bar | undefined): Picture["restart"] {
  if (!down) return null;
  const before = bars.filter((bar) => bar.kind !== "down" && bar.kind !== "wait" && (bar.end_at ?? Infinity) <= down.start_at);
  // Absent means done.
  const kept = before.filter((bar) => !bar.state || bar.state === "done" || bar.state === "failed").length;
  const cut = bars.filter((bar) => bar.kind === "model" && bar.state === "abandoned").map((bar) => bar.step);
  const again = bars.filter((bar) => bar.kind === "model" && bar.start_at >= (down.end_at ?? 0) && cut.includes(bar.step)).length;
  return { stoppedAt: down.start_at, backAt: down.end_at ?? down.start_at, kept, again };
}
