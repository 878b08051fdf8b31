import { describe, expect, it } from "vitest";
import type { SessionEvent } from "../src/api/types";
import { Pace } from "../src/app/pace";

const events = (count: number): SessionEvent[] => Array.from({ length: count }, () => ({ event: { kind: "text.delta", text: "x".repeat(100) } }) as SessionEvent);

describe("the pace of an answer", () => {
  it("draws what has come while nobody types", () => {
    expect(new Pace().share(events(150), false)).toBe(150);
  });

  it("draws smaller shares while frames take long, and larger ones while they are quick", () => {
    const pace = new Pace();
    expect(pace.share(events(50), true)).toBe(10);
    pace.took(200);
    expect(pace.share(events(50), true)).toBe(5);
    for (let frame = 0; frame < 20; frame += 1) {
      pace.share(events(50), true);
      pace.took(200);
    }
    expect(pace.share(events(50), true)).toBe(2);
    for (let frame = 0; frame < 40; frame += 1) {
      pace.share(events(50), true);
      pace.took(3);
    }
    expect(pace.share(events(50), true)).toBe(50);
  });

  it("always draws something", () => {
    const long = [{ event: { kind: "text.delta", text: "x".repeat(9_000) } }] as SessionEvent[];
    expect(new Pace().share(long, true)).toBe(1);
  });
});
