/** Schedules: what a row says of the last runs, and a rule as fields that a person can fill in. */

import type { Occurrence, ScheduleRule, ScheduleView } from "../api/types";

/** How a time is drawn: as a bar of its own kind. */
export type Mark = "ran" | "caught" | "skipped" | "running" | "waiting" | "failed";

export function markOf(occurrence: Occurrence): Mark {
  const state = occurrence.turn_state;
  if (state === "waiting") return "waiting";
  if (state === "failed" || state === "interrupted" || state === "cancelled") return "failed";
  if (state === "queued" || state === "running") return "running";
  if (occurrence.fate === "skipped" || occurrence.fate === "missed") return "skipped";
  return occurrence.fate === "caught_up" ? "caught" : "ran";
}

/** On whose clocks its times are told: its words name the zone, but for intervals, which know none. */
export function zoneOf(schedule: Pick<ScheduleView, "rule" | "timezone">): string | undefined {
  return schedule.rule.kind === "interval" ? undefined : schedule.timezone;
}

/** What a run costs as a rule; null: not known. */
export function averageCost(occurrences: readonly Occurrence[]): number | null {
  const costs = occurrences.flatMap((one) => (one.cost_usd == null ? [] : [one.cost_usd]));
  return costs.length ? costs.reduce((sum, cost) => sum + cost, 0) / costs.length : null;
}

// --- what is edited -------------------------------------------------------------------------------

export interface Draft {
  name: string;
  text: string;
  rule: ScheduleRule | null;
  timezone: string;
  when_missed: ScheduleView["when_missed"];
  when_overlapping: ScheduleView["when_overlapping"];
  runs_in: ScheduleView["runs_in"];
  model: string | null;
  profile: string | null;
  report_to: string | null;
}

const fields = ["name", "text", "rule", "timezone", "when_missed", "when_overlapping", "runs_in", "model", "profile", "report_to"] as const;

export function draftOf(schedule: ScheduleView | null, timezone: string): Draft {
  if (!schedule) {
    return { name: "", text: "", rule: null, timezone, when_missed: "last", when_overlapping: "skip", runs_in: "one", model: null, profile: null, report_to: null };
  }
  return Object.fromEntries(fields.map((field) => [field, schedule[field]])) as unknown as Draft;
}

/** Only what differs: the rest may have been changed elsewhere meanwhile. A rule goes with its zone. */
export function changesOf(draft: Draft, schedule: ScheduleView): Partial<Draft> {
  const changes: Record<string, unknown> = {};
  for (const field of fields) if (!isSame(draft[field], schedule[field])) changes[field] = draft[field];
  if ("timezone" in changes) changes.rule = draft.rule;
  return changes as Partial<Draft>;
}

export function isSame(left: unknown, right: unknown): boolean {
  return JSON.stringify(ordered(left)) === JSON.stringify(ordered(right));
}

function ordered(value: unknown): unknown {
  if (!value || typeof value !== "object") return value ?? null;
  return Object.entries(value)
    .filter(([, one]) => one != null)
    .sort(([left], [right]) => (left < right ? -1 : 1));
}

/** An interval counts from when it was made: said again, it stays the one that it was. */
export function sameRule(left: ScheduleRule | null | undefined, right: ScheduleRule): boolean {
  return left?.kind === "interval" && right.kind === "interval" ? left.every_s === right.every_s : isSame(left, right);
}

/** A schedule as one sentence, if its rule can be said in words. */
export function sentenceOf(schedule: ScheduleView): string {
  const words = schedule.words.endsWith(`, ${schedule.timezone}`) ? schedule.words.slice(0, -schedule.timezone.length - 2) : schedule.words;
  const { text } = schedule;
  // "I" and names that are written in capitals keep them.
  const task = /^[A-Z][a-z]/.test(text) ? text.charAt(0).toLowerCase() + text.slice(1) : text;
  return `${words} ${task}`;
}

// --- a rule as fields -----------------------------------------------------------------------------

/** Times of the wall clock on some days of the week. 1 is Monday, 7 Sunday. */
export interface DayFields {
  time: string;
  days: number[];
}

export const everyDay = [1, 2, 3, 4, 5, 6, 7];

/** Null: it says more than a time and days of the week can. */
export function daysFrom(rule: ScheduleRule | null): DayFields | null {
  if (rule?.kind !== "cron") return null;
  const [minute = "", hour = "", day, month, weekday = ""] = rule.expression.trim().split(/\s+/);
  if (!/^\d{1,2}$/.test(minute) || !/^\d{1,2}$/.test(hour) || day !== "*" || month !== "*") return null;
  const days = weekdays(weekday);
  return days && { time: `${hour.padStart(2, "0")}:${minute.padStart(2, "0")}`, days };
}

function weekdays(expression: string): number[] | null {
  if (expression === "*") return everyDay;
  const days = new Set<number>();
  for (const part of expression.split(",")) {
    const [, from, to] = /^([0-7])(?:-([0-7]))?$/.exec(part) ?? [];
    if (!from) return null;
    for (let day = Number(from); day <= Number(to ?? from); day += 1) days.add(day || 7);
  }
  return [...days].sort();
}

export function cronOf({ time, days }: DayFields): ScheduleRule {
  const [hour = "0", minute = "0"] = time.split(":");
  const names = [...days].sort();
  const isRun = names.length > 2 && names.every((day, index) => day === names[0]! + index);
  const week = names.length === 7 ? "*" : isRun ? `${names[0]}-${names.at(-1)}` : names.map((day) => (day === 7 ? 0 : day)).join(",");
  return { kind: "cron", expression: `${Number(minute)} ${Number(hour)} * * ${week || "*"}` };
}

export const units = [
  ["minutes", 60],
  ["hours", 3_600],
  ["days", 86_400],
  ["weeks", 604_800],
] as const;

/** An interval in the largest unit that fits. */
export function everyFrom(seconds: number): { count: number; unit: number } {
  const [, unit] = [...units].reverse().find(([, one]) => seconds % one === 0) ?? units[0];
  return { count: Math.max(1, Math.round(seconds / unit)), unit };
}
