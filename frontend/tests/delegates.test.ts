import { beforeEach, describe, expect, it, vi } from "vitest";
import { Api } from "../src/api/client";
import type { Delegate } from "../src/api/types";
import { Delegates } from "../src/app/delegates.svelte";
import { activityOf, countsOf, doingOf, piecesOf, spanOf, stateOf, usageOf, waitedMs } from "../src/state/delegates";
import { emptyTurn } from "../src/state/items";
import { drawn } from "../src/state/timeline";

function delegate(id: string, more: Partial<Delegate> = {}): Delegate {
  return {
    id, turn_id: `trn_${id}`, parent_session: "ses_1", parent_turn: "trn_1", call_id: "c1", name: id, depth: 1, state: "running", is_waited: true, is_stopping: false,
    created_at: 1_000, started_at: 1_000, ended_at: null, model: null, usage: {}, asks: 0, activity: "", files: null, is_applied: false, is_refused: false, failure: null,
    timeline: [], ...more,
  };
}

describe("a delegate", () => {
  it("is at one of these", () => {
    const states = [
      delegate("a", { state: "queued" }), delegate("b"), delegate("c", { state: "waiting" }), delegate("d", { state: "waiting", asks: 1 }), delegate("e", { is_stopping: true }),
      delegate("f", { state: "completed", is_stopping: true }), delegate("g", { state: "failed" }), delegate("h", { state: "cancelled" }), delegate("i", { state: "interrupted" }),
    ];
    expect(states.map(stateOf)).toEqual(["queued", "working", "waiting", "approval", "stopping", "finished", "failed", "stopped", "interrupted"]);
    expect(countsOf(states)).toEqual({ finished: 1, working: 3, waiting: 1, failed: 2, stopped: 1, queued: 1 });
  });

  it("does, or said, one line", () => {
    expect(activityOf(delegate("a", { activity: "\n## **Done:** `x` works\nmore" }))).toBe("Done: x works");
    const tool = { kind: "tool" as const, label: "make", start_at: 1 };
    expect(doingOf(delegate("a"))).toEqual({ how: "thinks", what: "" });
    expect(doingOf(delegate("a", { timeline: [tool] }))).toEqual({ how: "run", what: "make" });
    expect(doingOf(delegate("a", { timeline: [{ ...tool, end_at: 2 }] })).how).toBe("ran");
  });

  it("is drawn with its wait for a place, its calls and its waits", () => {
    const one = delegate("a", {
      created_at: 0, started_at: 500,
      timeline: [{ kind: "model", label: "m", start_at: 500, end_at: 600 }, { kind: "down", label: "", start_at: 600, end_at: 650 }, { kind: "wait", label: "Approval", start_at: 700 }],
    });
    expect(piecesOf(one, { from: 0, to: 1_000 }, 1_000)).toEqual([{ left: 0, width: 50, look: "ghost" }, { left: 50, width: 10, look: "m" }, { left: 70, width: 30, look: "w" }]);
    expect(waitedMs([one], 1_000)).toBe(300);
    expect(spanOf([one, delegate("b", { created_at: 400, ended_at: 1_200 })], 1_000)).toEqual({ from: 0, to: 1_200 });
  });

  it("adds to what its turn has used", () => {
    const used = delegate("a", { usage: { input_tokens: 5, cost_usd: 0.2 } });
    expect(usageOf([used, used], { input_tokens: 1, cost_usd: 0.1 })).toEqual({ input_tokens: 11, cost_usd: 0.5 });
  });
});

describe("the picture of a turn", () => {
  it("has the delegates in place of the call that waited for them, each followed by its own", () => {
    const turn = { ...emptyTurn("trn_1", 0), startedAt: 0, bars: [{ kind: "tool" as const, label: "delegate", start_at: 900, end_at: 3_000, call_id: "c1" }] };
    const rows = drawn(turn, 3_000, [delegate("a"), delegate("a1", { parent_session: "a", parent_turn: "trn_a", depth: 2 }), delegate("b")]).rows;
    expect(rows.map((row) => [row.label, row.depth, row.session])).toEqual([["a", 0, "a"], ["a1", 1, "a1"], ["b", 0, "b"]]);
    expect(drawn(turn, 3_000).rows.map((row) => row.session)).toEqual([undefined]);
  });
});

describe("the delegates of a session", () => {
  let items: Delegate[];
  let asked: string[];
  let refusal: Response | null;
  let delegates: Delegates;
  const ask = { id: "ask_1", session_id: "a", turn_id: "trn_a", topic: "approval", created_at: 1, call_id: "x", name: "terminal", arguments: '{"command":"ls"}', choices: ["once", "deny"], text: "why" };

  beforeEach(() => {
    [items, asked, refusal] = [[delegate("a", { state: "waiting", asks: 1 }), delegate("b", { call_id: "c2" })], [], null];
    vi.stubGlobal("fetch", (url: string, init: RequestInit) => {
      const { pathname } = new URL(url);
      if (init.method === "POST") {
        asked.push(`${pathname} ${String(init.body)}`);
        return Promise.resolve(refusal ?? Response.json({}));
      }
      if (pathname === "/api/approvals") return Promise.resolve(Response.json({ items: [ask, { ...ask, id: "ask_2", session_id: "other" }] }));
      return Promise.resolve(Response.json({ items }));
    });
    delegates = new Delegates(new Api("http://here/"), 60_000);
  });

  it("are read while they are in view, with what they ask", async () => {
    expect(delegates.ofCall("trn_1", "c1")).toBeNull();
    const leave = delegates.watch("trn_1");
    await vi.waitFor(() => expect(delegates.ofCall("trn_1", "c1")?.map((one) => one.id)).toEqual(["a"]));
    expect(delegates.asks.map((one) => [one.delegate, one.ask.id, one.ask.options, one.call?.callId])).toEqual([["a", "ask_1", ["once", "deny"], "x"]]);
    items = [delegate("a", { state: "completed" })];
    await delegates.look();
    expect([delegates.asks.length, delegates.of("trn_1")?.length]).toEqual([0, 1]);
    leave();
    items = [];
    await delegates.look();
    expect(delegates.of("trn_1")?.length).toBe(1);
  });

  it("are read at once when a turn comes into view again: one may have ended meanwhile", async () => {
    const leave = delegates.watch("trn_1");
    await vi.waitFor(() => expect(delegates.asks).toHaveLength(1));
    leave();
    items = [delegate("a", { state: "cancelled" })];
    delegates.watch("trn_1");
    await vi.waitFor(() => expect(delegates.asks).toHaveLength(0));
    expect(delegates.of("trn_1")?.[0]?.state).toBe("cancelled");
  });

  it("give their files, or say which of them were changed meanwhile", async () => {
    refusal = Response.json({ code: "files_conflict", detail: "1 changed file", conflicts: [{ path: "a.txt", what: "changed" }] }, { status: 409 });
    expect(await delegates.apply(items[0]!)).toEqual([{ path: "a.txt", what: "changed" }]);
    refusal = null;
    expect(await delegates.apply(items[0]!, "both")).toEqual([]);
    await delegates.stop(...items, delegate("c", { state: "completed" }));
    expect(asked).toEqual(["/api/delegates/a/apply {}", '/api/delegates/a/apply {"on_conflict":"both"}', "/api/delegates/a/stop {}", "/api/delegates/b/stop {}"]);
  });
});
