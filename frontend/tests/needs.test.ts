import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Api } from "../src/api/client";
import type { Ask, ListEvent, Needs, Session } from "../src/api/types";
import { NeedsList } from "../src/app/needs.svelte";
import { byPeople, isLong, merge, needsOf, platformOf, sessionOf, sharesOf, textOf } from "../src/state/needs";

function ask(id: string, topic: Ask["topic"], at: number, more: Partial<Ask> = {}): Ask {
  return { id, session_id: `ses_${id}`, turn_id: "trn_1", topic, created_at: at, ...more };
}

const job = { id: "job_1", session_id: "ses_j", command: "make", started_at: 1, ended_at: 5 } as Needs["jobs"][number];
const failed = { id: "occ_1", schedule_id: "sch_1", name: "Watch", at: 3, reason: "No.", due_at: 9, turn_id: "trn_1", session_id: "ses_w" } as Needs["schedules"][number];

function answer(asks: Ask[], more: Partial<Needs> = {}): Needs {
  return { asks, sends: [], jobs: [], schedules: [], total: asks.length, ...more };
}

describe("what needs the user", () => {
  it("is told oldest first, and what holds work up before the rest", () => {
    const rows = needsOf(answer([ask("b", "question", 8), ask("a", "approval", 7)], { jobs: [job], schedules: [failed] }));
    expect(rows.map((row) => row.id)).toEqual(["a", "b", "occ_1", "job_1"]);
  });

  it("names a budget once, however many turns wait for it", () => {
    const budget = { budget_id: "bud_1", needed: 1 };
    const rows = needsOf(answer([ask("a", "budget", 1, { budget }), ask("b", "budget", 2, { budget })]));
    expect(rows.map((row) => row.asks.map((one) => one.id))).toEqual([["a", "b"]]);
  });

  it("leads from a delegate's question to the session that the user has started", () => {
    expect(sessionOf(needsOf(answer([ask("a", "approval", 1, { root_session: "ses_root" })]))[0]!)).toBe("ses_root");
  });

  it("keeps a row that was answered elsewhere as one line, in its place", () => {
    const before = needsOf(answer([ask("a", "approval", 1), ask("b", "question", 2)]));
    const answered = new Map([["a", ask("a", "approval", 1, { answer: "once", by: "chat:telegram", answered_at: 7 })]]);
    const rows = merge(before, needsOf(answer([ask("b", "question", 2), ask("c", "question", 3)])), answered, 9);
    expect(rows.map((row) => [row.id, row.settled])).toEqual([["a", { answer: "once", by: "chat:telegram", at: 7 }], ["b", null], ["c", null]]);
    // Read again, it says the same; one that went away without an answer says so, too.
    const again = merge(rows, [], new Map(), 11);
    expect(again.map((row) => row.settled)).toEqual([{ answer: "once", by: "chat:telegram", at: 7 }, { answer: "", by: "", at: 11 }, { answer: "", by: "", at: 11 }]);
  });

  it("folds a call of more than eight lines, or of as many characters", () => {
    const call = (command: string) => textOf(needsOf(answer([ask("a", "approval", 1, { name: "terminal", arguments: JSON.stringify({ command }) })]))[0]!);
    expect(isLong(call(Array(8).fill("x").join("\n")))).toBe(false);
    expect(isLong(call(Array(9).fill("x").join("\n")))).toBe(true);
    expect(isLong(call("x".repeat(900)))).toBe(true);
  });

  it("counts as answered by people what no timer and no budget has answered", () => {
    const given = ["local", "chat:mail", "everturn", "budget", "expiry"].map((by, index) => ask(String(index), "approval", 1, { answer: "once", by }));
    expect(byPeople(given).map((one) => platformOf(one.by ?? ""))).toEqual(["", "mail"]);
  });

  it("draws a budget that is overspent as full", () => {
    const budget = { amount: 4, extra: 1, spent: 4.5, reserved: 2 } as Parameters<typeof sharesOf>[0];
    expect(sharesOf(budget)).toEqual({ whole: 5, spent: 0.9, reserved: expect.closeTo(0.1) });
    expect(sharesOf({ ...budget, spent: 9 })).toEqual({ whole: 5, spent: 1, reserved: 0 });
  });
});

describe("the list of what needs the user", () => {
  let present: Ask[];
  let refusal: Response | null;
  let reads: number;
  let posted: [string, unknown][];
  let needs: NeedsList;

  beforeEach(() => {
    present = [ask("a", "approval", 1, { choices: ["once", "deny"] })];
    refusal = null;
    reads = 0;
    posted = [];
    vi.stubGlobal("fetch", (url: string, init: RequestInit) => {
      const { pathname } = new URL(url);
      if (init.method === "POST") {
        posted.push([pathname, JSON.parse(init.body as string)]);
        if (refusal) return Promise.resolve(refusal);
        present = [];
        return Promise.resolve(Response.json({}));
      }
      if (pathname === "/api/needs/answered") return Promise.resolve(Response.json({ items: [ask("a", "approval", 1, { answer: "once", by: "local", answered_at: 4 })] }));
      reads += 1;
      return Promise.resolve(Response.json(answer(present)));
    });
    needs = new NeedsList(new Api("http://here/"));
  });
  afterEach(() => vi.useRealTimers());

  it("keeps an answered row until the next visit, and no longer counts it", async () => {
    await needs.visit();
    expect(needs.count).toBe(1);
    const [row] = needs.rows;
    await needs.act(row!, () => needs.answers.answer({ id: "a", topic: "approval", text: "", choices: [], options: ["once"], at: 1, answer: null }, "once"));
    expect(posted).toEqual([["/api/approvals/a", { decision: "once" }]]);
    expect([needs.count, needs.rows[0]?.settled?.answer]).toEqual([0, "once"]);
    await needs.visit();
    expect(needs.rows).toEqual([]);
  });

  it("leaves a row open whose answer could not be saved, and tries again", async () => {
    await needs.visit();
    const [row] = needs.rows;
    refusal = Response.json({ code: "disk_full", detail: "The disk is full." }, { status: 507 });
    const give = () => needs.answers.answer({ id: "a", topic: "approval", text: "", choices: [], options: ["once"], at: 1, answer: null }, "once");
    await needs.act(row!, give);
    expect([needs.count, needs.unsaved.get("a")?.why]).toEqual([1, "The disk is full."]);
    refusal = null;
    needs.unsaved.get("a")!.again();
    await vi.waitFor(() => expect(needs.rows[0]?.settled?.answer).toBe("once"));
    expect(needs.unsaved.size).toBe(0);
  });

  it("is read once for many pieces of news, and not for progress", async () => {
    vi.useFakeTimers();
    const row = { id: "ses_a", asks: 1 } as Session;
    const news = (session: Session, kind = "session.changed"): ListEvent => ({ kind, session_id: "ses_a", session });
    needs.hear([news({ ...row, position: 9 })], () => row);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(reads).toBe(0);
    needs.hear([news({ ...row, asks: 2 })], () => row);
    needs.hear([{ kind: "needs.changed" }], () => row);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(reads).toBe(1);
  });
});
