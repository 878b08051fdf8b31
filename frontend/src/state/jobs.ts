/** Jobs as a person looks at them: groups, progress, and output as a terminal would show it. */

import type { Job } from "../api/types";

export type JobFilter = "all" | "running" | "ended" | "lost";

export function isAtWork(job: Job): boolean {
  return job.state === "running" || job.state === "unreachable";
}

export function hasFailed(job: Job): boolean {
  return job.state === "ended" && job.exit_code !== 0;
}

export function groupOf(job: Job): Exclude<JobFilter, "all"> {
  if (isAtWork(job)) return "running";
  return job.state === "lost" ? "lost" : "ended";
}

export function grouped(jobs: readonly Job[], filter: JobFilter): { group: Exclude<JobFilter, "all">; jobs: Job[] }[] {
  return (["running", "ended", "lost"] as const)
    .filter((group) => filter === "all" || filter === group)
    .map((group) => ({ group, jobs: jobs.filter((job) => groupOf(job) === group) }))
    .filter(({ jobs: found }) => found.length);
}

/** Rows from an answer into those that are known, the newest first. A job that is over stays over. */
export function merge(known: readonly Job[], read: readonly Job[]): Job[] {
  const rows = new Map(known.map((job) => [job.id, job]));
  for (const job of read) {
    const old = rows.get(job.id);
    if (!old || isAtWork(old) || !isAtWork(job)) rows.set(job.id, job);
  }
  return [...rows.values()].sort((left, right) => right.started_at - left.started_at || (left.id < right.id ? 1 : -1));
}

/** The program and what it does, for a line with little room: `restic check`. */
export function shortCommand(command: string): string {
  const [program = "", ...rest] = command.trim().split("\n")[0]!.split(/\s+/);
  const name = program.split("/").pop() ?? program;
  const verb = rest[0] && /^[a-z][\w:-]*$/i.test(rest[0]) ? ` ${rest[0]}` : "";
  return name + verb;
}

/** How much is done in percent, where the output says it. */
export function shareOf(output: string): number | null {
  const found = [...output.slice(-400).matchAll(/(\d{1,3}(?:\.\d+)?)\s?%/g)].pop();
  const value = found ? Number(found[1]) : NaN;
  return value >= 0 && value <= 100 ? value : null;
}

/** How long the rest takes if it goes on like this; null: too early to tell. */
export function leftMs(share: number | null, workedMs: number): number | null {
  if (share === null || share < 1 || share >= 100 || workedMs < 10_000) return null;
  return (workedMs * (100 - share)) / share;
}

/** The address of a server that the job says it has started; a browser cannot open it. */
export function serverIn(output: string): string | null {
  return /\bhttps?:\/\/(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\])(?::\d+)?[^\s'"<>)\]]*/i.exec(output)?.[0] ?? null;
}

const escapes = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\^_])/g;

/** What a terminal would show: no colours, and of a line that was written over the last state. */
export function printed(text: string): string {
  return text
    .replace(escapes, "")
    .replace(/\r+\n/g, "\n")
    .split("\n")
    .map((line) => {
      const end = line.replace(/\r+$/, "");
      return end.slice(end.lastIndexOf("\r") + 1);
    })
    .join("\n");
}
