import { describe, expect, it } from "vitest";
import type { Bar, Message, SessionEvent, Turn, Usage } from "../src/api/types";
import { emptyTurn, isEnded, type Item, type TurnView } from "../src/state/items";
import { feed } from "../src/state/live";
import { settle } from "../src/state/settled";
import { labelOf } from "../src/state/tools";
import turns from "./fixtures/turns.json";

interface Fixture {
  title: string;
  row: Turn;
  messages: Message[];
  usage: Usage;
  timeline: Bar[];
  events: SessionEvent[];
}
const fixtures = turns as unknown as Fixture[];

function live(fixture: Fixture): TurnView {
  return fixture.events.reduce(feed, emptyTurn(fixture.row.id, fixture.row.created_at));
}

/** What a reader sees of an item; ids and times that only one of the two ways can know are left out. */
function seen(item: Item): unknown {
  switch (item.kind) {
    case "text":
      return { kind: item.kind, text: item.text, isAbandoned: item.isAbandoned };
    case "thought":
      return { kind: item.kind, text: item.text, isAbandoned: item.isAbandoned, ms: (item.endedAt ?? 0) - (item.startedAt ?? 0) };
    case "call":
      return { kind: item.kind, callId: item.callId, state: item.state, label: labelOf(item), given: item.arguments, wished: item.wished, outcome: item.result?.outcome ?? "ok", startedAt: item.startedAt };
    case "decision":
      return { kind: item.kind, label: item.label, decision: item.decision, isAllowed: item.isAllowed, isChanged: item.isChanged, at: item.at };
    case "seam":
      return { kind: item.kind, stoppedAt: item.stoppedAt, backAt: item.backAt, reason: item.reason };
    default:
      return { kind: item.kind };
  }
}

function plainBar(bar: Bar): unknown {
  return Object.fromEntries(
    Object.entries({ state: "done", ...bar }).filter(([, value]) => value !== null && value !== undefined && value !== false),
  );
}

describe("the page's fold", () => {
  it("has fixtures of every ending", () => {
    const states = new Set(fixtures.map((fixture) => fixture.row.state));
    for (const state of ["completed", "cancelled", "failed", "interrupted", "waiting", "running"]) expect(states).toContain(state);
  });

  for (const fixture of fixtures) {
    it(`draws the timeline that the server draws: ${fixture.title}`, () => {
      expect(live(fixture).bars.map(plainBar)).toEqual(fixture.timeline.map(plainBar));
    });
    it(`counts what the server counts: ${fixture.title}`, () => {
      const usage = live(fixture).usage;
      expect(Math.round(1e6 * (usage.cost_usd ?? 0))).toBe(Math.round(1e6 * (fixture.usage.cost_usd ?? 0)));
      expect(usage.input_tokens ?? 0).toBe(fixture.usage.input_tokens ?? 0);
    });
    if (!isEnded(fixture.row.state) || fixture.row.kind === "compaction") continue;
    it(`shows after a reload what was seen live: ${fixture.title}`, () => {
      const before = live(fixture);
      const after = settle(fixture.row, fixture.row.id, fixture.messages);
      expect(after.items.map(seen)).toEqual(before.items.map(seen));
      expect(after.state).toBe(before.state);
      expect(after.missedCache).toBe(before.missedCache);
      const short = (view: TurnView): string => (view.finish === "length" || view.finish === "filtered" ? view.finish : "");
      expect(short(after)).toBe(short(before));
    });
  }

  it("is the same whether events come one by one or again from the start", () => {
    for (const fixture of fixtures) expect(live(fixture)).toEqual(live(fixture));
  });
});
