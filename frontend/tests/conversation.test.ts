import { describe, expect, it } from "vitest";
import type { Message, MessagesPage, Payload, SessionEvent, Turn } from "../src/api/types";
import { acknowledge, apply, inOrderOf, moveQueued, noteRelease, open, place, prepend, replaceTurn, type Conversation } from "../src/state/conversation";
import { textOf } from "../src/state/items";

const session = "ses_a";

function message(turn: string, text: string, ordinal = 0, role: Message["role"] = "user"): Message {
  return { id: `msg_${turn}-000${ordinal}`, turn_id: turn, role, parts: [{ type: "text", text }], created_at: ordinal, ordinal };
}
function row(id: string, state: Turn["state"] = "completed", parent: string | null = null): Turn {
  return { id, session_id: session, owner: "o", state, epoch: 1, created_at: 1, parent_id: parent };
}
function event(position: number, turn: string | null, payload: Payload): SessionEvent {
  return { session_id: session, position, turn_id: turn, at: position * 10, event: payload };
}
function page(messages: Message[], turns: Turn[], more: Partial<MessagesPage> = {}): MessagesPage {
  return { messages, turns, version: 1, position: 10, replay_from: 10, ...more };
}
function all(start: Conversation, ...events: SessionEvent[]): Conversation {
  return events.reduce(apply, start);
}

describe("a conversation", () => {
  it("knows that the worker of a running turn has gone, until another one takes it", () => {
    const released = { ...row("trn_1", "running"), is_ready: true, epoch: 2 };
    const start = open(session, page([message("trn_1", "hi")], [released], { position: 5, replay_from: 2 }));
    const resumed = (position: number, epoch: number): SessionEvent =>
      event(position, "trn_1", { kind: "turn.resumed", epoch, worker: "w", reason: "crash" });
    const replayed = all(start, resumed(3, 2));
    expect(replayed.turns[0]!.releasedEpoch).toBe(2);
    expect(all(replayed, resumed(6, 3)).turns[0]!.releasedEpoch).toBeNull();
  });

  it("learns from a turn's row that its worker has gone, unless events have come since", () => {
    const running = row("trn_1", "running");
    const start = open(session, page([message("trn_1", "hi")], [running], { position: 5, replay_from: 5 }));
    const released = { ...running, is_ready: true };
    expect(noteRelease(start, released, 5).turns[0]!.releasedEpoch).toBe(1);
    expect(noteRelease(start, running, 5).turns[0]!.releasedEpoch).toBeNull();
    const resumed = apply(start, event(6, "trn_1", { kind: "turn.resumed", epoch: 2, worker: "w", reason: "crash" }));
    expect(noteRelease(resumed, released, 5).turns[0]!.releasedEpoch).toBeNull();
  });

  it("knows when the files were restored, without reading the messages again", () => {
    const start = open(session, page([message("trn_1", "hi")], [row("trn_1")]));
    const now = apply(start, event(11, null, { kind: "files.restored", at: "trn_1", changes: [], changes_total: 0, kept: [] }));
    expect([start.filesFrom, now.filesFrom, now.isStale]).toEqual([10, 11, false]);
  });

  it("rebuilds an active turn from its events and ignores what came before", () => {
    const start = open(session, page([message("trn_1", "hi")], [row("trn_1", "running")], { position: 5, replay_from: 2 }));
    expect(start.position).toBe(2);
    const now = all(
      start,
      event(2, "trn_1", { kind: "text.delta", step: 1, text: "not this" }),
      event(3, "trn_1", { kind: "turn.accepted", message: message("trn_1", "hi") }),
      event(4, "trn_1", { kind: "turn.started", epoch: 1, worker: "w" }),
      event(5, "trn_1", { kind: "text.delta", step: 1, text: "Hel" }),
      event(6, "trn_1", { kind: "text.delta", step: 1, text: "lo" }),
      event(6, "trn_1", { kind: "text.delta", step: 1, text: "lo" }),
    );
    expect(now.turns).toHaveLength(1);
    expect(now.turns[0]!.items).toMatchObject([{ kind: "text", text: "Hello", isLive: true }]);
  });

  it("knows what became of an answer in each chat", () => {
    const reply = { chat_id: "cht_1", account: "bot", platform: "telegram", title: "Ada", state: "unknown" as const, at: 5, parts: ["prt_1"] };
    const start = open(session, page([message("trn_1", "hi")], [{ ...row("trn_1"), replies: [{ ...reply, state: "waiting" }] }]));
    const unknown = apply(start, event(11, null, { kind: "reply.unknown", turn_id: "trn_1", reply }));
    expect([start, unknown].map((now) => now.turns[0]!.replies.map((one) => one.state))).toEqual([["waiting"], ["unknown"]]);
    const sent = all(
      unknown,
      event(12, null, { kind: "reply.sent", turn_id: "trn_1", reply: { ...reply, state: "sent", parts: [] } }),
      event(13, null, { kind: "reply.sent", turn_id: "trn_1", reply: { ...reply, chat_id: "cht_2", state: "sent" } }),
      event(14, null, { kind: "reply.sent", turn_id: "trn_other", reply }),
    );
    expect(sent.turns[0]!.replies.map((one) => [one.chat_id, one.state])).toEqual([["cht_1", "sent"], ["cht_2", "sent"]]);
  });

  it("passes over kinds and fields of a newer server and keeps its place", () => {
    const start = open(session, page([message("trn_1", "hi")], [row("trn_1", "running")], { position: 1, replay_from: 1 }));
    const newer = { kind: "weather.changed", paths: ["a.txt"] } as unknown as Payload;
    const now = all(
      start,
      event(2, "trn_1", { kind: "text.delta", step: 1, text: "Hel", colour: "red" } as Payload),
      event(3, "trn_1", newer),
      event(4, null, newer),
      event(4, "trn_1", { kind: "text.delta", step: 1, text: "seen already" }),
      event(5, "trn_1", { kind: "text.delta", step: 1, text: "lo" }),
    );
    expect(now.position).toBe(5);
    expect(now.isStale).toBeFalsy();
    expect(now.turns[0]!.items).toMatchObject([{ kind: "text", text: "Hello", isLive: true }]);
  });

  it("shows no longer that the model starts when it speaks", () => {
    const start = open(session, page([message("trn_1", "hi")], [row("trn_1", "running")], { position: 1, replay_from: 1 }));
    const starting = all(
      start,
      event(2, "trn_1", { kind: "step.started", step: 1, model: "m" }),
      event(3, "trn_1", { kind: "progress", label: "Starting m" }),
    );
    expect(starting.turns[0]!.items).toMatchObject([{ kind: "progress", label: "Starting m" }]);
    const speaking = apply(starting, event(4, "trn_1", { kind: "text.delta", step: 1, text: "Hel" }));
    expect(speaking.turns[0]!.items).toMatchObject([{ kind: "text", text: "Hel" }]);
  });

  it("queues what is accepted while a turn runs and starts it in its order", () => {
    let now = open(session, page([message("trn_1", "hi")], [row("trn_1", "running")], { replay_from: 0, position: 0 }));
    now = all(
      now,
      event(1, "trn_1", { kind: "turn.started", epoch: 1, worker: "w" }),
      event(2, "trn_2", { kind: "turn.accepted", message: message("trn_2", "two"), place: 1 }),
      event(3, "trn_3", { kind: "turn.accepted", message: message("trn_3", "three"), place: 2 }),
    );
    expect(now.queue.map((turn) => textOf(turn.asked))).toEqual(["two", "three"]);
    now = all(now, event(4, "trn_1", { kind: "turn.completed" }), event(5, "trn_2", { kind: "turn.started", epoch: 1, worker: "w" }));
    expect(now.turns.map((turn) => turn.id)).toEqual(["trn_1", "trn_2"]);
    expect(now.queue.map((turn) => turn.id)).toEqual(["trn_3"]);
    now = all(now, event(6, "trn_3", { kind: "turn.cancelled" }));
    expect(now.queue).toEqual([]);
    expect(now.turns.map((turn) => turn.id)).toEqual(["trn_1", "trn_2"]);
  });

  it("moves a queued message as the server will", () => {
    const rows = ["trn_2", "trn_3", "trn_4"].map((id) => row(id, "queued"));
    const now = open(session, page([message("trn_1", "hi")], [row("trn_1", "running"), ...rows]));
    const order = (id: string, to: number): string[] => moveQueued(now, id, to).queue.map((turn) => turn.id);
    expect(order("trn_4", 0)).toEqual(["trn_4", "trn_2", "trn_3"]);
    expect(order("trn_2", 2)).toEqual(["trn_3", "trn_4", "trn_2"]);
    expect(order("trn_3", 1)).toEqual(["trn_2", "trn_3", "trn_4"]);
    expect(order("trn_9", 0)).toEqual(["trn_2", "trn_3", "trn_4"]);
  });

  it("shows a message once, whether the answer or the event comes first", () => {
    const start = open(session, page([], []));
    const accepted = event(11, "trn_9", { kind: "turn.accepted", message: message("trn_9", "hi") });
    const first = apply(acknowledge(start, row("trn_9", "queued"), message("trn_9", "hi")), accepted);
    const second = acknowledge(apply(start, accepted), row("trn_9", "queued"), message("trn_9", "hi"));
    expect(first.turns).toHaveLength(1);
    expect(second.turns).toHaveLength(1);
  });

  it("wants to be read again when the path may have changed", () => {
    const start = open(session, page([message("trn_1", "hi")], [row("trn_1")]));
    for (const what of ["undo", "redo", "clear", "recovered", "queue"]) {
      expect(apply(start, event(11, null, { kind: "session.changed", version: 2, what })).isStale).toBe(true);
    }
    expect(apply(start, event(11, null, { kind: "session.changed", version: 2, what: "title" })).isStale).toBe(false);
    expect(apply(start, event(11, null, { kind: "snapshot", position: 11, version: 2 })).isStale).toBe(true);
    // A restored backup knows less than this page has seen.
    const restored = apply(start, event(3, null, { kind: "snapshot", position: 3, version: 2 }));
    expect([restored.isStale, restored.position]).toEqual([true, 3]);
  });

  it("notices a turn that hangs elsewhere: a retry made in another tab", () => {
    const start = open(session, page([message("trn_1", "hi")], [row("trn_1")]));
    const now = apply(start, event(11, "trn_2", { kind: "turn.accepted", message: message("trn_2", "hi") }));
    expect(now.unplaced).toBe("trn_2");
    expect(place(now, row("trn_2", "running", "trn_1")).isStale).toBe(false);
    expect(place(now, row("trn_2", "running", null)).turns.map((turn) => turn.id)).toEqual(["trn_2"]);
    expect(place(now, row("trn_2", "running", "trn_unknown")).isStale).toBe(true);
  });

  it("puts another version in the place of the old one at once, and drops what followed", () => {
    const start = open(session, page([message("trn_1", "a"), message("trn_2", "b"), message("trn_3", "c")], [row("trn_1"), row("trn_2", "completed", "trn_1"), row("trn_3", "completed", "trn_2")]));
    const now = replaceTurn(start, "trn_2", row("trn_4", "queued", "trn_1"), message("trn_4", "b again"));
    expect(now.turns.map((turn) => turn.id)).toEqual(["trn_1", "trn_4"]);
    const later = all(now, event(11, "trn_4", { kind: "turn.accepted", message: message("trn_4", "b again") }), event(12, "trn_4", { kind: "turn.started", epoch: 1, worker: "w" }));
    expect(later.turns.map((turn) => [turn.id, turn.state])).toEqual([["trn_1", "completed"], ["trn_4", "running"]]);
  });

  it("leaves an ended turn alone when late output of it passes by, and reopens it on resumption", () => {
    const start = open(session, page([message("trn_1", "hi")], [row("trn_1", "interrupted")]));
    const late = apply(start, event(11, "trn_1", { kind: "text.delta", step: 1, text: "late" }));
    expect(late.turns[0]!.items).toEqual([]);
    const again = all(late, event(12, "trn_1", { kind: "turn.resumed", epoch: 2, worker: "w", reason: "manual" }));
    expect(again.turns[0]!.state).toBe("running");
    expect(again.turns[0]!.items).toMatchObject([{ kind: "seam", reason: "manual" }]);
  });

  it("joins an older page that ends inside the first turn", () => {
    const start = open(session, page([message("trn_2", "answer", 1, "assistant")], [row("trn_2")], { cursor: "msg_trn_2-0001" }));
    const now = prepend(start, page([message("trn_1", "first"), message("trn_2", "second")], [row("trn_1"), row("trn_2")]));
    expect(now.turns.map((turn) => turn.id)).toEqual(["trn_1", "trn_2"]);
    expect(textOf(now.turns[1]!.asked)).toBe("second");
    expect(now.turns[1]!.items).toMatchObject([{ kind: "text", text: "answer" }]);
    expect(now.before).toBeNull();
  });

  it("keeps the order of the queue that is shown, and puts last what is new to it", () => {
    const queued = (...ids: string[]): Conversation => open(session, page([], [row("trn_0", "running"), ...ids.map((id) => row(id, "queued", "trn_0"))]));
    const order = inOrderOf(queued("trn_1", "trn_2", "trn_3"), queued("trn_2", "trn_1")).queue.map((turn) => turn.id);
    expect(order).toEqual(["trn_2", "trn_1", "trn_3"]);
  });
});
