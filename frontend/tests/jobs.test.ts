import { beforeEach, describe, expect, it, vi } from "vitest";
import { Api } from "../src/api/client";
import type { Job } from "../src/api/types";
import { JobOutput } from "../src/app/job-output.svelte";
import { Jobs } from "../src/app/jobs.svelte";
import { readRoute, writeRoute } from "../src/app/route";
import { grouped, leftMs, merge, printed, serverIn, shareOf, shortCommand } from "../src/state/jobs";
import { saysOf, whyOf } from "../src/views/jobs/mark";

function job(id: string, more: Partial<Job> = {}): Job {
  return {
    id, session_id: "ses_1", turn_id: "trn_1", call_id: "c", state: "running", command: "make all", started_at: 1_000, when_ended: "wake", is_sandboxed: true,
    machine: "", is_stopping: false, ended_at: null, exit_code: null, detail: "", output_bytes: 0, ...more,
  };
}

describe("jobs in their groups", () => {
  const all = [job("a"), job("b", { state: "unreachable" }), job("c", { state: "stopped" }), job("d", { state: "ended", exit_code: 1 }), job("e", { state: "lost" })];

  it("run, have ended or are lost", () => {
    expect(grouped(all, "all").map(({ group, jobs }) => [group, jobs.map((one) => one.id).join("")])).toEqual([["running", "ab"], ["ended", "cd"], ["lost", "e"]]);
    expect(grouped(all, "lost").length).toBe(1);
    expect(grouped([job("a")], "ended")).toEqual([]);
  });

  it("never begin to run again because of an old answer", () => {
    const [kept] = merge([job("a", { state: "ended", exit_code: 0 })], [job("a")]);
    expect(kept!.state).toBe("ended");
    expect(merge([job("a", { started_at: 1 })], [job("b", { started_at: 2 })]).map((one) => one.id)).toEqual(["b", "a"]);
  });

  it("say what became of them", () => {
    const at = Date.now();
    expect(saysOf(job("a", { started_at: at - 38 * 60_000 }), at)).toBe("Running for 38\u00a0min");
    expect(saysOf(job("a", { state: "ended", exit_code: 1, ended_at: at }), at)).toMatch(/^Failed \d\d:\d\d$/);
    expect(whyOf(job("a", { state: "lost", detail: "The machine was restarted." }))).toBe("The machine was restarted. Output up to then is kept.");
    expect(whyOf(job("a", { state: "unreachable", machine: "attic" }))).toContain("attic");
  });
});

describe("a job's output", () => {
  it("is what a terminal would show", () => {
    expect(printed("a\u001b[31mred\u001b[0m\r\n 1%\r 50%\r100%\nend\r")).toBe("ared\n100%\nend");
  });
  it("tells how far it is, and a server that no browser reaches", () => {
    expect(shareOf("[0:10] 3.1%\n[1:00] 31.02%  5884 / 18970 packs")).toBe(31.02);
    expect([shareOf("nothing"), shareOf("250%")]).toEqual([null, null]);
    expect([leftMs(25, 60_000), leftMs(0.5, 60_000), leftMs(50, 900)]).toEqual([180_000, null, null]);
    expect(serverIn("  ➜  Local:   http://localhost:5173/\n")).toBe("http://localhost:5173/");
    expect(serverIn("see https://example.com")).toBeNull();
  });
  it("has a short name in a line", () => {
    expect([shortCommand("/usr/bin/restic check --read-data"), shortCommand("make"), shortCommand("ls -la")]).toEqual(["restic check", "make", "ls"]);
  });
});

describe("reading jobs", () => {
  let text: string;
  let kept: number;
  let asked: string[];
  let listed: Job[];
  let isAway: boolean;
  const api = new Api("http://here/");

  beforeEach(() => {
    [text, kept, asked, listed, isAway] = ["", 0, [], [], false];
    vi.stubGlobal("fetch", (url: string, init: RequestInit) => {
      if (isAway) return Promise.reject(new TypeError("away"));
      const { pathname, searchParams } = new URL(url);
      asked.push(`${init.method} ${pathname}`);
      if (pathname.endsWith("/output")) {
        const start = Math.max(Number(searchParams.get("after")), kept);
        const piece = text.slice(start, start + Number(searchParams.get("limit")));
        return Promise.resolve(Response.json({ start, end: start + piece.length, total: text.length, text: piece }));
      }
      if (pathname === "/api/jobs") return Promise.resolve(Response.json({ items: listed }));
      const found = listed.find((one) => pathname.includes(one.id));
      return Promise.resolve(found ? Response.json(found) : Response.json({ code: "not_found" }, { status: 404 }));
    });
  });

  it("follows the output, also across a server that was away", async () => {
    const output = new JobOutput(api, "job_1", () => true);
    text = "one\n";
    await output.read();
    isAway = true;
    await expect(output.read()).rejects.toThrow();
    isAway = false;
    text += "two\n";
    await output.read();
    expect([output.text, output.total]).toEqual(["one\ntwo\n", 8]);
  });

  it("begins near the end of a long output, and says what is missing", async () => {
    text = "x".repeat(200_000);
    const output = new JobOutput(api, "job_1", () => true);
    await output.read();
    expect(output.total).toBe(200_000);
    expect(output.text.length).toBeLessThan(70_000);
    const middle = new JobOutput(api, "job_1", () => true);
    text = "abc";
    await middle.read();
    text = "abc" + "y".repeat(5000);
    kept = 2003;
    await middle.read();
    expect(middle.text).toMatch(/^abc\n… 2.kB of output were not kept …\ny{3000}$/);
  });

  it("knows one that is no longer listed, and one that is gone", async () => {
    const jobs = new Jobs(api, () => undefined);
    listed = [job("job_a")];
    await jobs.read();
    expect(jobs.running.map((one) => one.id)).toEqual(["job_a"]);
    listed = [job("job_a", { state: "ended", exit_code: 0 })];
    await jobs.read();
    expect(jobs.running).toEqual([]);
    expect(await jobs.readOne("job_x")).toBe(false);
    isAway = true;
    await jobs.read();
    expect(jobs.all.length).toBe(1);
  });

  it("looks again soon after news of jobs, not after other news, and not while it is hidden", async () => {
    vi.useFakeTimers();
    const jobs = new Jobs(api, () => undefined);
    await jobs.read();
    asked = [];
    jobs.hear([{ kind: "session.changed" }]);
    await vi.advanceTimersByTimeAsync(8_000);
    expect(asked.length).toBe(0);
    jobs.hear([{ kind: "jobs.changed" }]);
    jobs.hear([{ kind: "jobs.changed" }]);
    await vi.advanceTimersByTimeAsync(500);
    expect(asked.length).toBe(1);
    const visibility = vi.spyOn(document, "visibilityState", "get").mockReturnValue("hidden");
    jobs.hear([{ kind: "jobs.changed" }]);
    await vi.advanceTimersByTimeAsync(8_000);
    expect(asked.length).toBe(1);
    visibility.mockRestore();
    jobs.shown();
    jobs.shown();
    await vi.advanceTimersByTimeAsync(500);
    expect(asked.length).toBe(2);
    jobs.shown();
    await vi.advanceTimersByTimeAsync(8_000);
    expect(asked.length).toBe(2);
    vi.useRealTimers();
  });

  it("has an address", () => {
    expect(readRoute("#/jobs")).toEqual({ at: "jobs" });
    expect(readRoute(writeRoute({ at: "jobs", id: "job_1" }))).toEqual({ at: "jobs", id: "job_1" });
  });
});
