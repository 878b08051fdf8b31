import { beforeEach, describe, expect, it } from "vitest";
import { Api, Away, Problem, type Asking } from "../src/api/client";
import type { Disk } from "../src/keep/disk";
import { Outbox, type Unsent } from "../src/keep/outbox";

class MemoryDisk {
  stores = new Map<string, Map<string, unknown>>();
  private store(name: string): Map<string, unknown> {
    if (!this.stores.has(name)) this.stores.set(name, new Map());
    return this.stores.get(name)!;
  }
  all = async (name: string) => [...this.store(name).values()];
  get = async (name: string, key: string) => this.store(name).get(key);
  isRefusing = false;
  put = async (name: string, key: string, value: unknown) => {
    if (!this.isRefusing) this.store(name).set(key, structuredClone(value));
    return !this.isRefusing;
  };
  delete = async (name: string, key: string) => void this.store(name).delete(key);
}

class FakeApi extends Api {
  calls: { path: string; asking: Asking }[] = [];
  answers: (() => unknown)[] = [];
  override async post<T>(path: string, asking: Asking = {}): Promise<T> {
    this.calls.push({ path, asking });
    const answer = this.answers.shift();
    return (answer ? answer() : path.endsWith("/turns") ? { turn: { id: "trn_1" }, cursor: 1 } : { id: "ses_new" }) as T;
  }
}

const away = () => {
  throw new Away("no");
};

describe("messages on their way", () => {
  let api: FakeApi;
  let disk: MemoryDisk;
  let entries: readonly Unsent[];
  let accepted: string[];
  let outbox: Outbox;
  const draft = { session: "ses_a", leaving: null, text: "hello", files: [], model: null, profile: null, whenBusy: "queue" as const };

  function make(): Outbox {
    return new Outbox(api, disk as unknown as Disk, {
      onChange: (list) => (entries = list),
      onCreated: () => {},
      onAccepted: (entry) => accepted.push(entry.text),
    });
  }

  beforeEach(() => {
    api = new FakeApi("http://here/");
    disk = new MemoryDisk();
    entries = [];
    accepted = [];
    outbox = make();
  });

  it("is on the disk before it is sent, and gone only after the server has it", async () => {
    let onDisk = 0;
    api.answers.push(() => {
      onDisk = disk.stores.get("outbox")!.size;
      return { turn: { id: "trn_1" }, cursor: 1 };
    });
    await outbox.send(draft);
    expect(onDisk).toBe(1);
    expect(disk.stores.get("outbox")!.size).toBe(0);
    expect(entries).toEqual([]);
    expect(accepted).toEqual(["hello"]);
  });

  it("keeps a message that could not be sent and sends it again under the same key", async () => {
    api.answers.push(away);
    await outbox.send(draft);
    expect(entries).toMatchObject([{ state: "failed", problem: "" }]);
    expect(disk.stores.get("outbox")!.size).toBe(1);
    await outbox.retryAll();
    expect(accepted).toEqual(["hello"]);
    expect(api.calls[0]!.asking.key).toBe(api.calls[1]!.asking.key);
  });

  it("survives the browser: another visit finds and sends it, same key", async () => {
    api.answers.push(away);
    await outbox.send(draft);
    outbox = make();
    await outbox.restore();
    expect(accepted).toEqual(["hello"]);
    expect(api.calls[1]!.asking.key).toBe(api.calls[0]!.asking.key);
  });

  it("creates the session once, however often the message has to be sent", async () => {
    api.answers.push(() => ({ id: "ses_new" }), away);
    await outbox.send({ ...draft, session: null });
    await outbox.retryAll();
    expect(api.calls.map((call) => call.path)).toEqual(["api/sessions", "api/sessions/ses_new/turns", "api/sessions/ses_new/turns"]);
  });

  it("says why a message was refused and does not try that again by itself", async () => {
    api.answers.push(() => {
      throw new Problem(413, "text_too_long", "Too long.");
    });
    await outbox.send(draft);
    expect(entries).toMatchObject([{ state: "failed", problem: "Too long." }]);
    await outbox.retryAll();
    expect(api.calls).toHaveLength(1);
  });

  it("sends what piled up in the order in which it was written", async () => {
    api.answers.push(away, away);
    await outbox.send({ ...draft, text: "one" });
    await outbox.send({ ...draft, text: "two" });
    await outbox.retryAll();
    expect(accepted).toEqual(["one", "two"]);
  });

  it("is sent all the same where the browser keeps nothing, and says that it is not kept", async () => {
    disk.isRefusing = true;
    api.answers.push(away);
    await outbox.send(draft);
    expect(entries.map((entry) => [entry.state, entry.isKept])).toEqual([["failed", false]]);
    await outbox.retryAll();
    expect(accepted).toEqual(["hello"]);
    expect(entries).toEqual([]);
  });

  it("lets the draft go only when it is on the disk itself", async () => {
    const seen: number[] = [];
    await outbox.send(draft, () => seen.push(disk.stores.get("outbox")?.size ?? 0, api.calls.length));
    expect(seen).toEqual([1, 0]);
  });

  it("sends one after the other, so that they arrive in the order in which they were written", async () => {
    let answer = (_value: unknown): void => {};
    api.answers.push(() => new Promise((resolve) => (answer = resolve)));
    const first = outbox.send(draft);
    const second = outbox.send({ ...draft, text: "and then" });
    const elsewhere = outbox.send({ ...draft, session: "ses_b", text: "elsewhere" });
    await elsewhere;
    expect(api.calls.map((call) => (call.asking.body as { text: string }).text)).toEqual(["hello", "elsewhere"]);
    answer({ turn: { id: "trn_1" }, cursor: 1 });
    await Promise.all([first, second]);
    expect(accepted).toEqual(["elsewhere", "hello", "and then"]);
  });
});
