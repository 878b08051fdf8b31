import { describe, expect, it } from "vitest";
import type { Bar, Message, SessionEvent, Turn } from "../src/api/types";
import { emptyTurn, isEnded, type Item, type TurnView } from "../src/state/items";
import { feed, firstLine, foldedKinds } from "../src/state/live";
import { settle } from "../src/state/settled";
import { labelOf, verbOf } from "../src/state/tools";
import golden from "./fixtures/turns.json";

/** Written by `python -m tests.golden.turns` from the server's own fold. */
interface Fixture {
  title: string;
  row: Turn;
  messages: Message[];
  events: SessionEvent[];
}
const fixtures = golden.turns as unknown as Fixture[];

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
    case "question":
      return { kind: item.kind, text: firstLine(item.ask.text), answer: item.ask.answer };
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
      expect(live(fixture).bars.map(plainBar)).toEqual((fixture.row.timeline ?? []).map(plainBar));
    });
    it(`counts what the server counts: ${fixture.title}`, () => {
      const [seen, told] = [live(fixture).usage, fixture.row.usage ?? {}];
      expect(Math.round(1e6 * (seen.cost_usd ?? 0))).toBe(Math.round(1e6 * (told.cost_usd ?? 0)));
      expect(seen.input_tokens ?? 0).toBe(told.input_tokens ?? 0);
      expect(seen.output_tokens ?? 0).toBe(told.output_tokens ?? 0);
    });
    it(`ends as the server says: ${fixture.title}`, () => {
      const { state, failure, recovery } = live(fixture);
      expect(state).toBe(fixture.row.state);
      expect(failure).toEqual(fixture.row.failure ?? null);
      expect(recovery).toBe(fixture.row.recovery ?? "none");
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

  it("knows every kind of event and ignores those of a newer server", () => {
    const before = emptyTurn("trn", 0);
    const after = feed(before, { session_id: "ses", position: 1, turn_id: "trn", at: 5, event: { kind: "turn.dreamt" } as never });
    expect(after).toBe(before);
    expect(foldedKinds().sort()).toEqual(golden.kinds);
  });
});

describe("what a command printed before it was cut off", () => {
  const call = { type: "call" as const, id: "c", name: "terminal", arguments: '{"command":"make"}' };
  const printed = "compiled 40 of 100\n";
  const event = (position: number, payload: SessionEvent["event"]): SessionEvent => ({
    session_id: "ses",
    position,
    turn_id: "trn",
    at: position,
    event: payload,
  });
  const begun = [
    event(1, { kind: "step.started", step: 1, model: "m" }),
    event(2, { kind: "step.finished", step: 1, finish: "calls", calls: [call] }),
    event(3, { kind: "tool.started", step: 1, call_id: "c", name: "terminal", arguments: call.arguments }),
    event(4, { kind: "tool.output", call_id: "c", text: printed }),
  ];
  const after = (...more: SessionEvent[]): Item => [...begun, ...more].reduce(feed, emptyTurn("trn", 0)).items.at(-1)!;
  const output = (item: Item): unknown => item.kind === "call" && [item.output, item.result?.output];

  it("stays when the turn is stopped, and after a reload", () => {
    expect(output(after(event(5, { kind: "turn.cancelled" })))).toEqual([printed, printed]);
    const message = (role: Message["role"], parts: Message["parts"]): Message => ({ id: `msg_${role}`, turn_id: "trn", role, parts, created_at: 1 });
    const result = { type: "result" as const, call_id: "c", name: "terminal", text: "Outcome unknown", outcome: "unknown" as const, output: printed };
    const reloaded = settle(null, "trn", [message("assistant", [call]), message("tool", [result])]);
    expect(output(reloaded.items.at(-1)!)).toEqual([printed, printed]);
  });

  it("stays when a person says what became of it, and goes when the call reports back", () => {
    const asked = event(6, { kind: "question.asked", ask_id: "a", text: "?", topic: "doubt", call_id: "c" });
    const answered = event(7, { kind: "question.answered", ask_id: "a", answer: "take it as done", by: "me", topic: "doubt", call_id: "c" });
    const done = event(9, { kind: "tool.finished", call_id: "c", name: "terminal", outcome: "ok", text: "done" });
    expect(output(after(asked, answered, done))).toEqual([printed, printed]);
    const again = event(8, { kind: "tool.started", step: 1, call_id: "c", name: "terminal", arguments: call.arguments, attempt: 2 });
    expect(output(after(asked, answered, again, done))).toEqual(["", undefined]);
    expect((after(done) as { result: { output?: string } }).result.output).toBeUndefined();
  });
});

describe("a command in the background", () => {
  it("was started by its call, and did not run in it", () => {
    const verb = (given: object): string => verbOf({ name: "terminal", arguments: JSON.stringify(given) });
    expect([verb({ command: "make", background: true }), verb({ command: "make" })]).toEqual(["start", "run"]);
  });
});
