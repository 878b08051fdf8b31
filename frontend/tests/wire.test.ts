import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { silenceMaxMs } from "../src/wire/follower";
import { Hub, type FromHub, type ToHub } from "../src/wire/hub";

/** A server that records how it is asked and sends what the test tells it. */
class Server {
  asked: { sessions: string; cursor: string; controller: ReadableStreamDefaultController<Uint8Array>; signal: AbortSignal }[] = [];
  status = 200;

  fetch = (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    const headers = init!.headers as Record<string, string>;
    if (this.status === 0) return Promise.reject(new TypeError("away"));
    let controller!: ReadableStreamDefaultController<Uint8Array>;
    const body = new ReadableStream<Uint8Array>({ start: (given) => void (controller = given) });
    const signal = init!.signal!;
    signal.addEventListener("abort", () => controller.error(new DOMException("aborted", "AbortError")));
    this.asked.push({ sessions: new URL(String(input)).searchParams.get("sessions") ?? "", cursor: headers["last-event-id"] ?? "", controller, signal });
    return Promise.resolve(new Response(this.status === 200 ? body : null, { status: this.status }));
  };

  get last() {
    return this.asked[this.asked.length - 1]!;
  }
  event(session: string, position: number, kind = "progress"): void {
    const data = { session_id: session, position, turn_id: null, at: 1, event: { kind, label: "" } };
    this.send(`id: x\nevent: ${kind}\ndata: ${JSON.stringify(data)}\n\n`);
  }
  send(text: string): void {
    this.last.controller.enqueue(new TextEncoder().encode(text));
  }
  cut(): void {
    this.last.controller.close();
  }
}

class Tab {
  heard: FromHub[] = [];
  constructor(private readonly hub: Hub) {}
  send = (message: FromHub): void => void this.heard.push(message);
  say(message: ToHub): void {
    this.hub.hear(this, message);
  }
  want(sessions: Record<string, number>, token = 1): void {
    const wish = Object.fromEntries(Object.entries(sessions).map(([id, after]) => [id, { after, token }]));
    this.say({ type: "want", sessions: wish });
  }
  positions(session: string): number[] {
    return this.heard.flatMap((message) => (message.type === "events" && message.session === session ? message.events.map((event) => event.position) : []));
  }
  get states(): string[] {
    return this.heard.flatMap((message) => (message.type === "state" ? [message.state] : []));
  }
}

const settle = () => vi.advanceTimersByTimeAsync(0);

describe("one connection for many tabs", () => {
  let server: Server;
  let hub: Hub;
  let now = 0;

  beforeEach(() => {
    vi.useFakeTimers();
    server = new Server();
    hub = new Hub({ fetch: server.fetch as typeof fetch, address: (ids) => `http://here/api/events?sessions=${ids.join(",")}`, random: () => 1, now: () => now });
  });
  afterEach(() => {
    hub.pause();
    vi.useRealTimers();
  });

  it("resumes after the last event that was handed out: no gap, no repeat", async () => {
    const tab = new Tab(hub);
    tab.want({ ses_a: 3 });
    await settle();
    expect(server.last.cursor).toBe("ses_a:3");
    server.event("ses_a", 4);
    server.event("ses_a", 5);
    await settle();
    server.cut();
    await vi.advanceTimersByTimeAsync(300);
    expect(server.last.cursor).toBe("ses_a:5");
    server.event("ses_a", 5); // a server that repeats itself
    server.event("ses_a", 6);
    await settle();
    expect(tab.positions("ses_a")).toEqual([4, 5, 6]);
    expect(tab.states).toEqual(["connecting", "open", "lost", "connecting", "open"]);
  });

  it("waits longer after each failure and comes back at once when poked", async () => {
    const tab = new Tab(hub);
    server.status = 0;
    tab.want({});
    await settle();
    const tries = () => server.asked.length;
    await vi.advanceTimersByTimeAsync(20_000);
    server.status = 200;
    const before = tries();
    expect(before).toBe(0);
    tab.say({ type: "poke" });
    await settle();
    expect(tries()).toBe(1);
    expect(tab.states.at(-1)).toBe("open");
  });

  it("gives a tab that starts again only its own replay", async () => {
    const first = new Tab(hub);
    const second = new Tab(hub);
    first.want({ ses_a: 0 });
    await settle();
    for (const position of [1, 2, 3]) server.event("ses_a", position);
    await settle();
    second.want({ ses_a: 1 });
    await settle();
    expect(server.asked).toHaveLength(2);
    expect(server.last.cursor).toBe("ses_a:1");
    expect(server.asked[0]!.signal.aborted).toBe(true);
    for (const position of [2, 3, 4]) server.event("ses_a", position);
    await settle();
    expect(first.positions("ses_a")).toEqual([1, 2, 3, 4]);
    expect(second.positions("ses_a")).toEqual([2, 3, 4]);
  });

  it("marks events with the wish that they answer, so that a tab can drop those of an earlier one", async () => {
    const tab = new Tab(hub);
    tab.want({ ses_a: 0 }, 1);
    await settle();
    server.event("ses_a", 7);
    await settle();
    tab.want({ ses_a: 2 }, 2);
    await settle();
    server.event("ses_a", 3);
    await settle();
    const events = tab.heard.filter((message) => message.type === "events");
    expect(events.map((message) => message.token)).toEqual([1, 2]);
  });

  it("serves ten tabs with one connection and the list to all", async () => {
    const tabs = Array.from({ length: 10 }, () => new Tab(hub));
    tabs.forEach((tab, index) => tab.want({ [`ses_${index}`]: 0 }));
    await settle();
    expect(server.asked.filter((asked) => !asked.signal.aborted)).toHaveLength(1);
    expect(server.last.sessions.split(",")).toHaveLength(10);
    server.send('event: session.done\ndata: {"session_id":"ses_1"}\n\n');
    await settle();
    for (const tab of tabs) expect(tab.heard.some((message) => message.type === "list")).toBe(true);
  });

  it("says that the visitor is signed out, and does not hammer", async () => {
    const tab = new Tab(hub);
    server.status = 401;
    tab.want({ ses_a: 1 });
    await vi.advanceTimersByTimeAsync(60_000);
    expect(tab.states.at(-1)).toBe("signed_out");
    expect(server.asked).toHaveLength(1);
    server.status = 200;
    tab.say({ type: "poke" });
    await settle();
    expect(tab.states.at(-1)).toBe("open");
  });

  it("takes a silent connection for dead", async () => {
    const tab = new Tab(hub);
    tab.want({ ses_a: 1 });
    await settle();
    await vi.advanceTimersByTimeAsync(silenceMaxMs - 1000);
    server.send(":\n\n");
    await vi.advanceTimersByTimeAsync(silenceMaxMs - 1000);
    expect(server.asked).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(3_000);
    expect(server.asked).toHaveLength(2);
  });

  it("forgets a tab that crashed and stops when no tab is left", async () => {
    const tab = new Tab(hub);
    tab.want({ ses_a: 1 });
    await settle();
    now = 130_000;
    hub.tick();
    expect(server.last.signal.aborted).toBe(true);
  });

  it("hands out a snapshot from before what was read: a backup was restored", async () => {
    const tab = new Tab(hub);
    tab.want({ ses_a: 9 });
    await settle();
    server.event("ses_a", 4, "snapshot");
    await settle();
    expect(tab.positions("ses_a")).toEqual([4]);
  });
});
