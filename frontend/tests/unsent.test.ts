import { beforeEach, describe, expect, it, vi } from "vitest";
import { Api, Away, Problem, type Asking } from "../src/api/client";
import type { Disk } from "../src/keep/disk";
import { Sender, type Unsent } from "../src/keep/unsent";

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
  update = async (name: string, key: string, value: unknown) => {
    if (this.store(name).has(key)) await this.put(name, key, value);
  };
  delete = async (name: string, key: string) => void this.store(name).delete(key);
}

class FakeApi extends Api {
  /** What is asked for that is no message: the answer, or what is thrown. */
  others: Record<string, () => unknown> = {};
  override async get<T>(path: string): Promise<T> {
    return this.other(`GET ${path}`) as T;
  }
  override async delete<T>(path: string): Promise<T> {
    return this.other(`DELETE ${path}`) as T;
  }
  asked: string[] = [];
  private other(what: string): unknown {
    this.asked.push(what);
    return this.others[what]?.();
  }
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
const refusal = (status: number, text: string) => () => {
  throw new Problem(status, "refused", text);
};
const accept = () => ({ turn: { id: "trn_1" }, cursor: 1 });

function later<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve!: (value: T) => void;
  const promise = new Promise<T>((given) => (resolve = given));
  return { promise, resolve };
}

/** Answers when it is told to. */
function held(): { call: () => Promise<unknown>; called: Promise<void>; answer: (value: unknown) => void } {
  const given = later<unknown>();
  const called = later<void>();
  return {
    call: () => {
      called.resolve();
      return given.promise;
    },
    called: called.promise,
    answer: given.resolve,
  };
}

describe("messages on their way", () => {
  let api: FakeApi;
  let disk: MemoryDisk;
  let entries: readonly Unsent[];
  let accepted: string[];
  let refused: string[];
  let created: () => void;
  let sender: Sender;
  const draft = { session: "ses_a", leaving: null, text: "hello", files: [], model: null, profile: null, whenBusy: "queue" as const };

  function make(): Sender {
    return new Sender(api, disk as unknown as Disk, {
      onChange: (list) => (entries = list),
      onCreated: () => created(),
      onAccepted: (entry) => accepted.push(entry.text),
      onRefused: (problem) => refused.push(problem.message),
    });
  }

  beforeEach(() => {
    api = new FakeApi("http://here/");
    disk = new MemoryDisk();
    entries = [];
    accepted = [];
    refused = [];
    created = () => {};
    sender = make();
  });

  it("is on the disk before it is sent, and gone only after the server has it", async () => {
    let onDisk = 0;
    api.answers.push(() => {
      onDisk = disk.stores.get("outbox")!.size;
      return { turn: { id: "trn_1" }, cursor: 1 };
    });
    await sender.send(draft);
    expect(onDisk).toBe(1);
    expect(disk.stores.get("outbox")!.size).toBe(0);
    expect(entries).toEqual([]);
    expect(accepted).toEqual(["hello"]);
  });

  it("keeps a message that could not be sent and sends it again under the same key", async () => {
    api.answers.push(away);
    await sender.send(draft);
    expect(entries).toMatchObject([{ state: "failed", problem: "" }]);
    expect(disk.stores.get("outbox")!.size).toBe(1);
    await sender.retryAll();
    expect(accepted).toEqual(["hello"]);
    expect(api.calls[0]!.asking.key).toBe(api.calls[1]!.asking.key);
  });

  it("begins the session in the folder that was chosen, however late it is sent", async () => {
    api.answers.push(away);
    await sender.send({ ...draft, session: null, place: "new", project: "/srv/site" });
    api.answers.push(() => ({ id: "ses_b" }));
    await make().restore();
    const made = api.calls.filter((call) => call.path === "api/sessions");
    expect(made.map((call) => call.asking.body)).toEqual([{ project: "/srv/site" }, { project: "/srv/site" }]);
  });

  it("survives the browser: another visit finds and sends it, same key", async () => {
    api.answers.push(away);
    await sender.send(draft);
    sender = make();
    await sender.restore();
    expect(accepted).toEqual(["hello"]);
    expect(api.calls[1]!.asking.key).toBe(api.calls[0]!.asking.key);
  });

  it("creates the session once, however often the message has to be sent", async () => {
    api.answers.push(() => ({ id: "ses_new" }), away);
    await sender.send({ ...draft, session: null });
    await sender.retryAll();
    expect(api.calls.map((call) => call.path)).toEqual(["api/sessions", "api/sessions/ses_new/turns", "api/sessions/ses_new/turns"]);
  });

  it("two messages for a session that does not exist yet go into one, in their order", async () => {
    const creating = held();
    api.answers = [creating.call];
    const first = sender.send({ ...draft, session: null, place: "new-1", text: "first" });
    const second = sender.send({ ...draft, session: null, place: "new-1", text: "second" });
    await creating.called;
    creating.answer({ id: "ses_new" });
    await Promise.all([first, second]);
    expect(api.calls.map((call) => call.path)).toEqual(["api/sessions", "api/sessions/ses_new/turns", "api/sessions/ses_new/turns"]);
    expect(api.calls.slice(1).map((call) => (call.asking.body as { text: string }).text)).toEqual(["first", "second"]);
  });

  it("asks for the same session again when the answer was lost, also after a reload", async () => {
    api.answers = [away, away];
    await sender.send({ ...draft, session: null, place: "new-1", text: "first" });
    await sender.send({ ...draft, session: null, place: "new-1", text: "second" });
    sender = make();
    await sender.restore();
    const creations = api.calls.filter((call) => call.path === "api/sessions");
    expect(new Set(creations.map((call) => call.asking.key))).toEqual(new Set(["new-1-session"]));
    expect(api.calls.slice(-2).map((call) => call.path)).toEqual(["api/sessions/ses_new/turns", "api/sessions/ses_new/turns"]);
  });

  it("says why a message was refused and does not try that again by itself", async () => {
    api.answers.push(() => {
      throw new Problem(413, "text_too_long", "Too long.");
    });
    await sender.send(draft);
    expect(entries).toMatchObject([{ state: "failed", problem: "Too long." }]);
    await sender.retryAll();
    expect(api.calls).toHaveLength(1);
  });

  it("sends what piled up in the order in which it was written", async () => {
    api.answers.push(away, away);
    await sender.send({ ...draft, text: "one" });
    await sender.send({ ...draft, text: "two" });
    await sender.retryAll();
    expect(accepted).toEqual(["one", "two"]);
  });

  it("is sent all the same where the browser keeps nothing, and says that it is not kept", async () => {
    disk.isRefusing = true;
    api.answers.push(away);
    await sender.send(draft);
    expect(entries.map((entry) => [entry.state, entry.isKept])).toEqual([["failed", false]]);
    await sender.retryAll();
    expect(accepted).toEqual(["hello"]);
    expect(entries).toEqual([]);
  });

  it("lets the draft go only when it is on the disk itself", async () => {
    const seen: number[] = [];
    await sender.send(draft, () => seen.push(disk.stores.get("outbox")?.size ?? 0, api.calls.length));
    expect(seen).toEqual([1, 0]);
  });

  it("sends one after the other, so that they arrive in the order in which they were written", async () => {
    let answer = (_value: unknown): void => {};
    api.answers.push(() => new Promise((resolve) => (answer = resolve)));
    const first = sender.send(draft);
    const second = sender.send({ ...draft, text: "and then" });
    const elsewhere = sender.send({ ...draft, session: "ses_b", text: "elsewhere" });
    await elsewhere;
    expect(api.calls.map((call) => (call.asking.body as { text: string }).text)).toEqual(["hello", "elsewhere"]);
    answer({ turn: { id: "trn_1" }, cursor: 1 });
    await Promise.all([first, second]);
    expect(accepted).toEqual(["elsewhere", "hello", "and then"]);
  });

  it("does not let the second message of a new session overtake the first, whose file is still on its way", async () => {
    disk.stores.set("files", new Map([["fil_a", { id: "fil_a", blob: new Blob(["bytes"]) }]]));
    const uploading = held();
    api.answers.push(() => ({ id: "ses_new" }), uploading.call);
    const made = later<void>();
    created = made.resolve;
    const file = { id: "fil_a", name: "a.txt", type: "text/plain", size: 5, fileId: null };
    const first = sender.send({ ...draft, session: null, files: [file] });
    await made.promise;
    const second = sender.send({ ...draft, session: "ses_new", text: "and then" });
    await uploading.called;
    // Time enough for the second, if it did not wait.
    await sender.send({ ...draft, session: "ses_b", text: "elsewhere" });
    uploading.answer({ id: "fil_there" });
    await Promise.all([first, second]);
    expect(accepted).toEqual(["elsewhere", "hello", "and then"]);
  });

  it("keeps what is tried again meanwhile from being sent before it is on the disk", async () => {
    const sending = sender.send(draft);
    await sender.retryAll();
    expect(api.calls).toHaveLength(0);
    await sending;
    expect(accepted).toEqual(["hello"]);
    expect(disk.stores.get("outbox")!.size).toBe(0);
  });

  describe("out of the queue into the running turn", () => {
    const steer = { ...draft, text: "use vault", whenBusy: "steer" as const, removes: "trn_q" };
    const queued = "api/sessions/ses_a/queue/trn_q";

    it("leaves the queue only after the server has it", async () => {
      const taking = held();
      api.answers.push(taking.call);
      const sending = sender.send(steer);
      await taking.called;
      expect(api.asked).toEqual([`GET ${queued}`]);
      taking.answer(accept());
      await sending;
      expect(api.asked).toEqual([`GET ${queued}`, `DELETE ${queued}`]);
    });

    it("is said once, however often it is clicked", async () => {
      await Promise.all([sender.send(steer), sender.send(steer)]);
      expect(api.calls).toHaveLength(1);
    });

    it("stays in the queue while the server is away, and leaves it with the message", async () => {
      api.answers.push(away);
      await sender.send(steer);
      expect(api.asked).toEqual([`GET ${queued}`]);
      await sender.retryAll();
      expect(api.asked).toEqual([`GET ${queued}`, `GET ${queued}`, `DELETE ${queued}`]);
      expect(accepted).toEqual(["use vault"]);
    });

    it("tries again to leave the queue, under the same key", async () => {
      api.others[`DELETE ${queued}`] = away;
      await sender.send(steer);
      expect(entries).toMatchObject([{ state: "failed", problem: "" }]);
      api.others = {};
      await sender.retryAll();
      expect(api.calls[0]!.asking.key).toBe(api.calls[1]!.asking.key);
      expect(entries).toEqual([]);
    });

    it("is not said again when it has begun by itself", async () => {
      api.answers.push(away);
      await sender.send(steer);
      api.others[`GET ${queued}`] = refusal(404, "There is no queued turn.");
      await sender.retryAll();
      expect(api.calls).toHaveLength(1);
      expect(entries).toEqual([]);
      expect(disk.stores.get("outbox")!.size).toBe(0);
    });

    it("stays in the queue when it is refused", async () => {
      api.answers.push(refusal(413, "Too long."));
      await sender.send(steer);
      expect(api.asked).toEqual([`GET ${queued}`]);
      expect(refused).toEqual(["Too long."]);
      expect(entries).toEqual([]);
    });
  });

  describe("to a session that is gone", () => {
    const session = "GET api/sessions/ses_a";

    it("waits to begin another one, under another key", async () => {
      api.answers.push(refusal(410, "Deleted."));
      api.others[session] = refusal(410, "Deleted.");
      await sender.send(draft);
      expect(entries).toMatchObject([{ session: null, state: "failed", problem: "Deleted." }]);
      // Another visit does not begin one by itself.
      sender = make();
      await sender.restore();
      expect(api.calls).toHaveLength(1);
      expect(entries).toHaveLength(1);
      await sender.again(entries[0]!.key);
      expect(api.calls.map((call) => call.path)).toEqual(["api/sessions/ses_a/turns", "api/sessions", "api/sessions/ses_new/turns"]);
      expect(new Set(api.calls.map((call) => call.asking.key)).size).toBe(3);
      expect(disk.stores.get("outbox")!.size).toBe(0);
    });

    it("does the same when the deletion is heard of, in every tab alike", async () => {
      api.answers.push(away);
      await sender.send(draft);
      const other = make();
      api.answers.push(away);
      await other.restore();
      await Promise.all([sender.orphan("ses_a", "Gone."), other.orphan("ses_a", "Gone.")]);
      expect(disk.stores.get("outbox")!.size).toBe(1);
      expect(entries).toMatchObject([{ session: null, problem: "Gone." }]);
    });

    it("stays with its session when something else is not there", async () => {
      api.answers.push(refusal(404, "There is no file."));
      await sender.send(draft);
      expect(entries).toMatchObject([{ session: "ses_a", problem: "There is no file." }]);
    });
  });

  describe("known to two tabs", () => {
    it("is forgotten by the one, not sent and not put back, when the other has sent it", async () => {
      api.answers.push(away);
      await sender.send(draft);
      const other = make();
      await other.restore();
      expect(accepted).toEqual(["hello"]);
      await sender.retryAll();
      expect(api.calls).toHaveLength(2);
      expect(entries).toEqual([]);
    });

    it("is not called lost where the other has sent it with its file meanwhile", async () => {
      const file = { id: "fil_a", name: "a.txt", type: "text/plain", size: 5, fileId: null };
      const making = held();
      api.answers.push(making.call);
      const sending = sender.send({ ...draft, session: null, files: [file] });
      await making.called;
      // Without locks: the other had it sent, and all of it is off the disk.
      disk.stores.get("outbox")!.clear();
      making.answer({ id: "ses_new" });
      await sending;
      expect(entries).toEqual([]);
      expect(disk.stores.get("outbox")!.size).toBe(0);
    });

    it("is sent by one at a time where the browser can see to that", async () => {
      let last: Promise<unknown> = Promise.resolve();
      const request = (_name: string, act: () => Promise<unknown>) => (last = last.then(act));
      vi.stubGlobal("navigator", { locks: { request } });
      const taking = held();
      api.answers.push(taking.call);
      const first = sender.send(draft);
      await taking.called;
      const second = make().restore();
      taking.answer(accept());
      await Promise.all([first, second]);
      expect(api.calls).toHaveLength(1);
      expect(entries).toEqual([]);
      vi.unstubAllGlobals();
    });
  });

  it("is taken back without its files, which the draft has now", async () => {
    await disk.put("files", "fil_a", { id: "fil_a" });
    api.answers.push(away);
    await sender.send({ ...draft, files: [{ id: "fil_a", name: "a", type: "", size: 1, fileId: "fil_there" }] });
    await sender.withdraw(entries[0]!.key);
    expect(entries).toEqual([]);
    expect(disk.stores.get("outbox")!.size).toBe(0);
    expect(disk.stores.get("files")!.size).toBe(1);
  });
});
