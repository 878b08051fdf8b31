import { describe, expect, it, vi } from "vitest";
import { Api, Problem } from "../src/api/client";
import type { Budget } from "../src/api/types";
import { Budgets } from "../src/app/budgets.svelte";
import { amountText, barOf, boundingSession, dayOf, monthOf, shortOf, usedOf } from "../src/state/budgets";

function budget(id: string, more: Partial<Budget> = {}): Budget {
  return {
    id, scope: "day", unit: "usd", subject: "", amount: 5, extra: 0, spent: 0, estimated: 0, reserved: 0, unpriced_tokens: 0, timezone: "UTC", period_start: 0,
    period_end: 86_400_000, waiting: 0, ...more,
  };
}

describe("a budget's bar", () => {
  it("is spent, reserved and left", () => {
    expect(barOf(budget("a", { spent: 3, reserved: 0.5 }))).toEqual({ limit: 5, left: 1.5, spentShare: 60, reservedShare: 10 });
  });
  it("never exceeds its track, and counts what was raised", () => {
    expect(barOf(budget("a", { spent: 6, reserved: 1 }))).toEqual({ limit: 5, left: 0, spentShare: 100, reservedShare: 0 });
    expect(barOf(budget("a", { spent: 5, extra: 5 })).spentShare).toBe(50);
    expect(barOf(budget("a", { amount: 0, spent: 0 })).spentShare).toBe(0);
  });
  it("is too small for a call although something is left", () => {
    // It was 0 when it was asked about, and was changed since.
    expect(shortOf(budget("a", { unit: "tokens", amount: 3000 }), 7046)).toEqual({ needed: 7046, left: 3000 });
    expect(shortOf(budget("a", { amount: 2 }), 3_000_000)).toEqual({ needed: 3, left: 2 });
    expect(shortOf(budget("a", { amount: 4 }), 3_000_000)).toBeNull();
    expect(shortOf(budget("a", { spent: 5 }), 3_000_000)).toBeNull(); // nothing is left: it is used up
    expect(shortOf(undefined, 3)).toBeNull();
  });
  it("has words", () => {
    expect([amountText("usd", 3.121), amountText("usd", 0.004), amountText("tokens", 60_000)]).toEqual(["$3.12", "$0.004", "60k"]);
    // Midnight in Auckland is still the day before in most of the world.
    const start = Date.UTC(2026, 10, 30, 11);
    expect([monthOf(start, "Pacific/Auckland"), dayOf(start, "Pacific/Auckland"), monthOf(start, "No/Where").length > 0]).toEqual(["December", "1 December", true]);
  });
  it("counts a turn in tokens where its price is not known", () => {
    expect(usedOf({ input_tokens: 5, output_tokens: 2 }, "usd")).toBeNull();
    expect(usedOf({ input_tokens: 5, output_tokens: 2 }, "tokens")).toBe(7);
  });
});

describe("budgets", () => {
  it("of a session bound it, and those of others do not", () => {
    const all = [budget("m", { scope: "month" }), budget("d"), budget("x", { scope: "session", subject: "ses_2" }), budget("s", { scope: "session", subject: "ses_1" })];
    expect(boundingSession(all, "ses_1").map((one) => one.id)).toEqual(["s", "d", "m"]);
  });

  it("are set, and keep what they were if that is refused", async () => {
    const asked: unknown[] = [];
    let isRefused = false;
    vi.stubGlobal("fetch", (_url: string, init: RequestInit) => {
      if (init.method === "PUT") asked.push(JSON.parse(init.body as string));
      if (isRefused) return Promise.resolve(Response.json({ code: "invalid", detail: "-1 is not a usable amount." }, { status: 422 }));
      return Promise.resolve(Response.json({ items: [budget("a")], timezone: "Europe/Brussels" }));
    });
    const budgets = new Budgets(new Api("http://here/"));
    await budgets.read();
    await budgets.put({ scope: "day", unit: "usd" }, 5, "UTC");
    expect(asked).toEqual([{ scope: "day", unit: "usd", subject: "", amount: 5, timezone: "UTC" }]);
    isRefused = true;
    await expect(budgets.put({ scope: "day", unit: "usd" }, -1)).rejects.toBeInstanceOf(Problem);
    expect([budgets.items.length, budgets.timezone]).toEqual([1, "Europe/Brussels"]);
  });
});
