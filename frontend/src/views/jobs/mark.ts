import type { Job } from "../../api/types";
import { hasFailed, isAtWork } from "../../state/jobs";
import { duration, relativeDay, time, when } from "../../text/format";
import { workWords } from "../../work-words";
import type { IconName } from "../icons";

/** The sign before a job that is over. */
export function iconOf(job: Job): IconName {
  if (job.state === "unreachable" || job.state === "lost") return "unplug";
  if (job.state === "stopped") return "square";
  return hasFailed(job) ? "x" : "check";
}

/** How long it has been at work, or worked: whole minutes as soon as there are some. */
export function ageOf(job: Job, now: number): string {
  const ms = Math.max(0, (job.ended_at ?? now) - job.started_at);
  return duration(ms < 60_000 ? Math.floor(ms / 1000) * 1000 : Math.floor(ms / 60_000) * 60_000);
}

/** What has become of it, for its heading. */
export function saysOf(job: Job, now: number): string {
  if (isAtWork(job)) return job.is_stopping ? workWords.stopping : workWords.runningFor(ageOf(job, now));
  const at = job.ended_at ?? job.started_at;
  const day = when(at, now).replace(/^today /, "");
  if (job.state === "lost") return workWords.lostAt(day);
  if (job.state === "stopped") return workWords.stoppedAt(day);
  return hasFailed(job) ? workWords.failedAt(day) : workWords.endedAt(day);
}

/** Why a job that is over ended otherwise than well, or where one is that does not answer. */
export function whyOf(job: Job): string {
  if (job.state === "unreachable") return job.machine ? workWords.unreachableOn(job.machine) : workWords.unreachable;
  if (job.state === "lost") return workWords.lostWhy(job.detail);
  return job.detail;
}

export function startedOf(job: Job, now: number): string {
  const said = when(job.started_at, now);
  return said.startsWith(`${relativeDay(0)} `) ? time(job.started_at) : said;
}
