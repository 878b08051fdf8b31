/** Times on the clocks of a time zone; without one, on those of this browser. */

import { relativeDay, time } from "./format";
import { locale } from "./language";

const nb = "\u00a0";
const formats = new Map<string, Intl.DateTimeFormat>();

function format(zone: string | undefined, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${zone}${JSON.stringify(options)}`;
  let found = formats.get(key);
  if (!found) {
    try {
      found = new Intl.DateTimeFormat(locale, { ...options, timeZone: zone });
    } catch {
      // The server knows a zone that this browser does not.
      found = new Intl.DateTimeFormat(locale, options);
    }
    formats.set(key, found);
  }
  return found;
}

export function zonedTime(at: number, zone?: string): string {
  return zone ? format(zone, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }).format(at) : time(at);
}

/** "Wed 18 Nov", with the year where it is another one. */
export function zonedDay(at: number, now: number, zone?: string): string {
  const day = format(zone, { weekday: "short", day: "numeric", month: "short" }).format(at).replace(",", "");
  return yearOf(at, zone) === yearOf(now, zone) ? day : `${day} ${yearOf(at, zone)}`;
}

/** As short as it still tells: "10:00" today, "Wed 08:00" this week, "Tue 24 Nov 09:00", "21 Mar 2027". */
export function zonedWhen(at: number, now: number, zone?: string): string {
  const days = daysBetween(at, now, zone);
  if (days === 0) return zonedTime(at, zone);
  if (Math.abs(days) < 7) return `${format(zone, { weekday: "short" }).format(at)} ${zonedTime(at, zone)}`;
  if (yearOf(at, zone) === yearOf(now, zone)) return `${zonedDay(at, now, zone)} ${zonedTime(at, zone)}`;
  return format(zone, { day: "numeric", month: "short", year: "numeric" }).format(at);
}

/** The same for what has been: today is named. */
export function zonedPast(at: number, now: number, zone?: string): string {
  return daysBetween(at, now, zone) === 0 ? `${relativeDay(0)} ${zonedTime(at, zone)}` : zonedWhen(at, now, zone);
}

const short = new Intl.RelativeTimeFormat(locale, { style: "short" });
const long = new Intl.RelativeTimeFormat(locale);
const atOnce = new Intl.RelativeTimeFormat(locale, { numeric: "auto" });

/** "in 36 min", "in 23 h", "in 7 days", "in 4 months". */
export function ahead(at: number, now: number): string {
  const minutes = Math.max(0, Math.round((at - now) / 60_000));
  if (minutes < 1) return atOnce.format(0, "second");
  if (minutes < 60) return short.format(minutes, "minute").replace(/ (?=\D+$)/, nb);
  const hours = Math.round(minutes / 60);
  if (hours < 36) return short.format(hours, "hour").replace(/ (?=\D+$)/, nb).replace("hr", "h");
  const days = Math.round(hours / 24);
  if (days < 60) return long.format(days, "day");
  const months = Math.round(days / 30.4);
  return months < 24 ? long.format(months, "month") : long.format(Math.round(days / 365), "year");
}

/** "2026-11-18", by which days are told apart. */
export function dayKey(at: number, zone?: string): string {
  const parts = format(zone, { year: "numeric", month: "2-digit", day: "2-digit" }).formatToParts(at);
  const of = (type: string) => parts.find((part) => part.type === type)!.value;
  return `${of("year")}-${of("month")}-${of("day")}`;
}

function daysBetween(at: number, now: number, zone?: string): number {
  return Math.round((Date.parse(dayKey(at, zone)) - Date.parse(dayKey(now, zone))) / 86_400_000);
}

function yearOf(at: number, zone?: string): string {
  return dayKey(at, zone).slice(0, 4);
}
