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
  put = async (name: string, value: Record<string, unknown>) => void this.store(name).set(String(value.key ?? value.id), structuredClone(value));
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
});
