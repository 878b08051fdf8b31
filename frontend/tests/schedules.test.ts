import { beforeEach, describe, expect, it, vi } from "vitest";
import { Api } from "../src/api/client";
import type { Occurrence, ScheduleRule, ScheduleView } from "../src/api/types";
import { ScheduleEditor } from "../src/app/schedule-editor.svelte";
import { Schedules } from "../src/app/schedules.svelte";
import { averageCost, changesOf, cronOf, daysFrom, draftOf, everyFrom, markOf, sameRule, sentenceOf } from "../src/state/schedules";
import { ahead, zonedPast, zonedWhen } from "../src/text/zoned";

const rule: ScheduleRule = { kind: "cron", expression: "0 8 * * 1-5" };
const schedule = {
  id: "sch_1", version: 3, name: "Morning", text: "Summarise my inbox.", rule, timezone: "Europe/Vienna", words: "Weekdays at 08:00, Europe/Vienna",
  when_missed: "last", when_overlapping: "skip", runs_in: "one", session_id: null, model: null, profile: null, report_to: null,
  trusted: true, paused: false, pause_reason: "", due_at: 9, waiting: false, created_at: 1, last: [],
} as ScheduleView;

function occurrence(more: Partial<Occurrence>): Occurrence {
  return { id: "occ_1", due_at: 1, fate: "ran", reason: "", is_manual: false, created_at: 1, turn_state: "completed", ...more };
}

describe("schedules", () => {
  it("draw a time by what became of it, and of its turn", () => {
    const marks = [occurrence({}), occurrence({ fate: "caught_up" }), occurrence({ fate: "missed", turn_state: null }), occurrence({ turn_state: "waiting" }), occurrence({ turn_state: "failed" }), occurrence({ turn_state: "queued" })];
    expect(marks.map(markOf)).toEqual(["ran", "caught", "skipped", "waiting", "failed", "running"]);
  });

  it("know what a run costs only from runs whose cost is known", () => {
    expect(averageCost([occurrence({ cost_usd: 0.02 }), occurrence({ cost_usd: null }), occurrence({ cost_usd: 0.04 })])).toBeCloseTo(0.03);
    expect(averageCost([occurrence({})])).toBeNull();
  });

  it("read times on days of the week from a cron rule, and write them back", () => {
    for (const expression of ["0 8 * * 1-5", "30 6 * * *", "5 22 * * 0,6"]) expect(cronOf(daysFrom({ kind: "cron", expression })!)).toEqual({ kind: "cron", expression: expression === "5 22 * * 0,6" ? "5 22 * * 6,0" : expression });
    for (const expression of ["*/5 * * * *", "0 8 1 * *", "0 8 * * MON#1"]) expect(daysFrom({ kind: "cron", expression })).toBeNull();
    expect(everyFrom(21_600)).toEqual({ count: 6, unit: 3_600 });
  });

  it("send only what was changed, and a rule with its zone", () => {
    const draft = draftOf(schedule, "");
    expect(changesOf(draft, schedule)).toEqual({});
    expect(changesOf({ ...draft, name: "Early" }, schedule)).toEqual({ name: "Early" });
    expect(changesOf({ ...draft, timezone: "UTC" }, schedule)).toEqual({ timezone: "UTC", rule });
    expect(sameRule({ kind: "interval", every_s: 60, start_at: 1 }, { kind: "interval", every_s: 60, start_at: 2 })).toBe(true);
  });

  it("tell times on the clocks of their zone", () => {
    const now = Date.UTC(2026, 10, 17, 8);
    expect([zonedWhen(Date.UTC(2026, 10, 17, 9), now, "Europe/Vienna"), zonedWhen(Date.UTC(2026, 10, 18, 7), now, "Europe/Vienna"), zonedWhen(Date.UTC(2026, 10, 24, 8), now, "Europe/Vienna"), zonedWhen(Date.UTC(2027, 2, 21, 9), now, "Europe/Vienna")]).toEqual(["10:00", "Wed 08:00", "Tue 24 Nov 09:00", "21 Mar 2027"]);
    expect(zonedPast(Date.UTC(2026, 10, 17, 7), now, "No/Where")).toMatch(/^today /);
    expect([36 * 60_000, 23 * 3_600_000, 7 * 86_400_000, 124 * 86_400_000].map((later) => ahead(now + later, now).replaceAll("\u00a0", " "))).toEqual(["in 36 min", "in 23 h", "in 7 days", "in 4 months"]);
  });
});

describe("the editor of a schedule", () => {
  let answers: Record<string, unknown>;
  let sent: [string, string, unknown][];
  let schedules: Schedules;
  const preview = { words: "Weekdays at 08:00, Europe/Vienna", times: [10, 20], clock_changes: [] };
  const clear = { reading: { name: "Summarise my inbox", text: "Summarise my inbox.", timing: { rule, timezone: "Europe/Vienna" } }, preview };

  beforeEach(() => {
    answers = { "/api/schedules/read": clear, "/api/schedules/preview": preview, "/api/schedules": { ...schedule, items: [schedule], chats: [], timezone: "UTC" }, "/api/schedules/sch_1": schedule, "/api/budgets": { items: [] } };
    sent = [];
    vi.stubGlobal("fetch", (url: string, init: RequestInit) => {
      const { pathname } = new URL(url);
      if (init.method !== "GET") sent.push([init.method!, pathname, JSON.parse(init.body as string)]);
      const answer = answers[pathname];
      return Promise.resolve(answer instanceof Response ? answer : Response.json(answer));
    });
    schedules = new Schedules(new Api("http://here/"));
  });

  it("saves what the server has read, with a budget if there is one", async () => {
    const editor = new ScheduleEditor(schedules, null);
    editor.type("Every weekday at 8 summarise my inbox.");
    expect(editor.canSave).toBe(false);
    await vi.waitFor(() => expect(editor.canSave).toBe(true));
    editor.budget = 0.1;
    await editor.save();
    const [, made, budget] = sent;
    expect([made![1], (made![2] as { name: string }).name]).toEqual(["/api/schedules", "Summarise my inbox"]);
    expect(budget).toEqual(["PUT", "/api/budgets", { scope: "schedule", subject: "sch_1", amount: 0.1 }]);
  });

  it("saves nothing while the time is not clear, or never comes", async () => {
    const editor = new ScheduleEditor(schedules, null);
    answers["/api/schedules/read"] = { reading: { name: "", text: "clean up", question: "At what time?", choices: [{ label: "18:00", sentence: "On the 31st at 18:00 clean up" }] } };
    editor.type("On the 31st in the evening clean up");
    await vi.waitFor(() => expect(editor.open?.question).toBe("At what time?"));
    expect([editor.canSave, await editor.save()]).toEqual([false, null]);
    answers["/api/schedules/read"] = Response.json({ code: "invalid", detail: "This rule never fires." }, { status: 422 });
    editor.type("On the 30th of February at 8 rest");
    await vi.waitFor(() => expect(editor.problem).toBe("This rule never fires."));
    expect(editor.canSave).toBe(false);
  });

  it("says a schedule as a sentence only if it is read back as the same one", async () => {
    const editor = new ScheduleEditor(schedules, schedule);
    await vi.waitFor(() => expect(editor.sentence).toBe("Weekdays at 08:00 summarise my inbox."));
    expect([editor.sentence, editor.isDirty]).toEqual([sentenceOf(schedule), false]);
    const other = new ScheduleEditor(schedules, { ...schedule, text: "At 9 call me." });
    await vi.waitFor(() => expect(other.isReading).toBe(false));
    expect([other.sentence, other.preview?.words]).toEqual([null, preview.words]);
  });

  it("says why it was not saved, and keeps what was written", async () => {
    const editor = new ScheduleEditor(schedules, schedule);
    await vi.waitFor(() => expect(editor.isReading).toBe(false));
    answers["/api/schedules/sch_1"] = Response.json({ code: "gone", detail: "It was deleted." }, { status: 410 });
    editor.set({ name: "Early" });
    expect(await editor.save()).toBeNull();
    expect([editor.unsaved, editor.draft.name]).toEqual(["It was deleted.", "Early"]);
  });
});
