import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { FromHub, ToHub } from "../src/wire/hub";
import { Link } from "../src/wire/link";
import { tickMs } from "../src/wire/parts";

/** A worker that can be told to fall silent, as one that the browser has ended. */
const { FakeWorker } = vi.hoisted(() => ({ FakeWorker: class FakeWorker {
  static made: FakeWorker[] = [];
  heard: ToHub[] = [];
  onerror: (() => void) | null = null;
  port = {
    onmessage: null as ((event: { data: FromHub }) => void) | null,
    start: () => {},
    postMessage: (message: ToHub) => this.heard.push(message),
  };
  constructor() {
    FakeWorker.made.push(this);
  }
  say(data: FromHub): void {
    this.port.onmessage?.({ data });
  }
} }));
vi.mock("../src/wire/worker?sharedworker", () => ({ default: FakeWorker }));

describe("a tab's end of the connection", () => {
  const events: unknown[] = [];
  const listener = { onEvents: (...heard: unknown[]) => events.push(heard), onList: () => {}, onState: () => {} };

  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("SharedWorker", class {});
    FakeWorker.made = [];
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  it("starts the worker again when it has died, and wants the same sessions from where it was", async () => {
    const link = new Link("http://here/", listener);
    link.want("ses_a", 3);
    FakeWorker.made[0]!.say({ type: "events", session: "ses_a", token: 1, events: [{ position: 7 } as never] });
    await vi.advanceTimersByTimeAsync(4 * tickMs);
    expect(FakeWorker.made).toHaveLength(2);
    expect(FakeWorker.made[1]!.heard.at(-1)).toEqual({ type: "want", sessions: { ses_a: { after: 7, token: 1 } } });
  });

  it("leaves a worker alone that asks after its tabs", async () => {
    new Link("http://here/", listener);
    for (let tick = 0; tick < 8; tick += 1) {
      FakeWorker.made[0]!.say({ type: "ping" });
      await vi.advanceTimersByTimeAsync(tickMs);
    }
    expect(FakeWorker.made).toHaveLength(1);
  });

  it("goes on without a worker where its script cannot be had", async () => {
    const asked = vi.fn(() => new Promise<Response>(() => {}));
    vi.stubGlobal("fetch", asked);
    const link = new Link("http://here/", listener);
    link.want("ses_a", 3);
    FakeWorker.made[0]!.onerror!();
    await vi.advanceTimersByTimeAsync(0);
    expect(asked).toHaveBeenCalledTimes(1);
  });
});
