/** Numbers, times and sizes in the page's way: tabular, short, with a no-break space before units. */

import { locale } from "./language";

const nb = "\u00a0";
const decimals = [0, 1, 2, 3].map((digits) => new Intl.NumberFormat(locale, { minimumFractionDigits: digits, maximumFractionDigits: digits, useGrouping: false }));
const grouped = new Intl.NumberFormat(locale);
const relative = new Intl.RelativeTimeFormat(locale, { numeric: "auto" });
const inDays = new Intl.NumberFormat(locale, { style: "unit", unit: "day", unitDisplay: "long" });
const isDollarFirst = new Intl.NumberFormat(locale, { style: "currency", currency: "USD", currencyDisplay: "narrowSymbol" }).format(0).startsWith("$");

/** A number with so many digits behind the point, or the comma. */
export function fixed(value: number, digits: number): string {
  return decimals[digits]!.format(value);
}

/** A whole number: "12,345". */
export function whole(value: number): string {
  return grouped.format(value);
}

export function duration(ms: number): string {
  if (ms < 0) return duration(0);
  if (ms < 95) return `${fixed(Math.max(ms, 10) / 1000, 2)}${nb}s`;
  if (ms < 9_950) return `${trim(fixed(ms / 1000, 1))}${nb}s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds}${nb}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return pair(minutes, "min", seconds % 60, "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return pair(hours, "h", minutes % 60, "min");
  return inDays.format(Math.round(hours / 24)).replace(" ", nb);
}

/** For what a person does not notice, but an operator asks about. */
export function milliseconds(ms: number): string {
  return `${ms < 10 ? trim(fixed(ms, 1)) : Math.round(ms)}${nb}ms`;
}

/** For narrow columns: one number and one unit. */
export function durationShort(ms: number): string {
  if (ms < 59_500) return duration(ms);
  if (ms < 3_570_000) return `${trim(fixed(ms / 60_000, 1))}${nb}min`;
  return `${trim(fixed(ms / 3_600_000, 1))}${nb}h`;
}

/** For clocks that tick: whole seconds. */
export function clock(ms: number): string {
  return ms < 10_000 ? `${Math.max(0, Math.floor(ms / 1000))}${nb}s` : duration(Math.floor(ms / 1000) * 1000);
}

function pair(big: number, bigUnit: string, small: number, smallUnit: string): string {
  return small ? `${big}${nb}${bigUnit} ${small}${nb}${smallUnit}` : `${big}${nb}${bigUnit}`;
}

function trim(number: string): string {
  return number.replace(/[.,]0$/, "");
}

/** Whole sentences: a text that was cut in the middle of one ends before it, or says that it goes on. */
export function sentences(text: string): string {
  const said = text.trim();
  if (!said || /[.!?)]$/.test(said)) return said;
  const end = Math.max(...[". ", "! ", "? "].map((mark) => said.lastIndexOf(mark)));
  return end > 20 ? said.slice(0, end + 1) : `${said}…`;
}

export function count(value: number): string {
  if (value < 1000) return String(Math.round(value));
  if (value < 99_950) return `${trim(fixed(value / 1000, 1))}k`;
  if (value < 1_000_000) return `${Math.round(value / 1000)}k`;
  return `${trim(fixed(value / 1_000_000, 1))}M`;
}

export function money(usd: number): string {
  if (usd === 0) return dollars("0");
  if (usd < 0.001) return `<${dollars(fixed(0.001, 3))}`;
  return dollars(fixed(usd, usd < 0.01 ? 3 : 2));
}

/** "$1.50", also of nothing: "$0.00". */
export function cents(usd: number): string {
  return dollars(fixed(usd, 2));
}

function dollars(amount: string): string {
  return isDollarFirst ? `$${amount}` : `${amount}${nb}$`;
}

export function bytes(size: number): string {
  if (size < 1000) return `${size}${nb}B`;
  if (size < 1_000_000) return `${Math.round(size / 1000)}${nb}kB`;
  if (size < 1_000_000_000) return `${trim(fixed(size / 1_000_000, 1))}${nb}MB`;
  return `${trim(fixed(size / 1_000_000_000, 1))}${nb}GB`;
}

const timeFormat = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const secondsFormat = new Intl.DateTimeFormat(locale, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const dayFormat = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short" });
const weekdayFormat = new Intl.DateTimeFormat(locale, { weekday: "short" });
const yearFormat = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", year: "numeric" });
const monthFormat = new Intl.DateTimeFormat(locale, { month: "long", year: "numeric" });
const monthOnlyFormat = new Intl.DateTimeFormat(locale, { month: "long" });

// A day that was written down as such is the same everywhere.
const writtenDayFormat = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });

export function time(at: number): string {
  return timeFormat.format(at);
}

export function timeWithSeconds(at: number): string {
  return secondsFormat.format(at);
}

export function month(at: number, now = Date.now()): string {
  const isThisYear = new Date(at).getFullYear() === new Date(now).getFullYear();
  return (isThisYear ? monthOnlyFormat : monthFormat).format(at);
}

/** A day and, where it is near, a time: "today 09:13", "Tue 22:10", "2 Nov". */
export function when(at: number, now = Date.now()): string {
  const days = daysBetween(at, now);
  if (days === 0 || days === 1) return `${relativeDay(-days)} ${time(at)}`;
  if (days < 7) return `${weekdayFormat.format(at)} ${time(at)}`;
  return new Date(at).getFullYear() === new Date(now).getFullYear() ? dayFormat.format(at) : yearFormat.format(at);
}

/** "yesterday", "today", "tomorrow". */
export function relativeDay(days: number): string {
  return relative.format(days, "day");
}

/** When it was, to the minute: "22:10" today, "Tue 22:10", "2 Nov 22:10", "2 Nov 2024 22:10". */
export function stamp(at: number, now = Date.now()): string {
  const days = daysBetween(at, now);
  if (days === 0) return time(at);
  const isThisYear = new Date(at).getFullYear() === new Date(now).getFullYear();
  return `${(days < 7 ? weekdayFormat : isThisYear ? dayFormat : yearFormat).format(at)} ${time(at)}`;
}

/** A day without a time, as it was written down: "15 Nov 2026". */
export function day(at: number): string {
  return writtenDayFormat.format(at);
}

/** The shortest that still tells: the time today, the day otherwise. */
export function whenShort(at: number, now = Date.now()): string {
  const days = daysBetween(at, now);
  if (days === 0) return time(at);
  if (days < 7) return weekdayFormat.format(at);
  return dayFormat.format(at);
}

function daysBetween(at: number, now: number): number {
  const start = (value: number) => new Date(value).setHours(0, 0, 0, 0);
  return Math.round((start(now) - start(at)) / 86_400_000);
}

/** What a person typed as a limit; null: none, undefined: not a number above 0. */
export function limitOf(typed: string, isWhole: boolean): number | null | undefined {
  const text = typed.trim();
  if (!text) return null;
  const value = Number(text);
  return Number.isFinite(value) && value > 0 && (!isWhole || Number.isInteger(value)) ? value : undefined;
}
