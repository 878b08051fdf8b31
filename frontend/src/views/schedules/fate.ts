/** What became of a time, in words and with an icon. */

import type { Occurrence, ScheduleView } from "../../api/types";
import { scheduleWords } from "../../schedule-words";
import { markOf, zoneOf } from "../../state/schedules";
import { duration, money } from "../../text/format";
import { zonedPast, zonedTime } from "../../text/zoned";
import type { IconName } from "../icons";

export interface Fate {
  text: string;
  icon: IconName | null;
  look: "" | "wait" | "bad" | "live";
}

export function fateOf(schedule: ScheduleView, now: number): Fate {
  if (schedule.paused && schedule.pause_reason) return { text: schedule.pause_reason, icon: "circle-alert", look: "bad" };
  if (schedule.waiting) return { text: scheduleWords.waitsForRun, icon: "clock", look: "" };
  const [last] = schedule.last;
  if (!last) {
    const text = [scheduleWords.notYet, schedule.rule.kind === "once" ? scheduleWords.runsOnce : ""].filter(Boolean).join(" ");
    return { text, icon: "clock", look: "" };
  }
  const fate = tellOccurrence(last, now, zoneOf(schedule));
  return schedule.paused && !fate.look ? { ...fate, icon: "circle-pause" } : fate;
}

export function tellOccurrence(one: Occurrence, now: number, zone: string | undefined): Fate {
  const began = one.started_at ?? one.created_at;
  const when = zonedPast(began, now, zone);
  switch (markOf(one)) {
    case "waiting":
      return { text: scheduleWords.waits(zonedTime(began, zone)), icon: "shield", look: "wait" };
    case "running":
      return { text: scheduleWords.running(zonedTime(began, zone)), icon: null, look: "live" };
    case "failed": {
      const at = zonedPast(one.ended_at ?? began, now, zone);
      const text = one.turn_state === "cancelled" ? scheduleWords.stopped(at) : one.turn_state === "interrupted" ? scheduleWords.interrupted(at) : scheduleWords.failed(at, one.failure ?? "");
      return { text, icon: "circle-alert", look: "bad" };
    }
    case "skipped": {
      const due = zonedPast(one.due_at, now, zone);
      return { text: one.fate === "missed" ? scheduleWords.missed(due, one.reason) : scheduleWords.skipped(due, one.reason), icon: "skip-forward", look: "" };
    }
    case "caught":
      return { text: scheduleWords.caughtUp(when, duration(began - one.due_at), one.reason), icon: "history", look: "" };
    default:
      return { text: [scheduleWords.ran(when), one.is_manual ? scheduleWords.byHand : "", ...figures(one)].filter(Boolean).join(" · "), icon: "check", look: "" };
  }
}

export function figures(one: Occurrence): string[] {
  const took = one.started_at != null && one.ended_at != null ? duration(one.ended_at - one.started_at) : "";
  return [took, one.cost_usd == null ? "" : money(one.cost_usd)].filter(Boolean);
}
