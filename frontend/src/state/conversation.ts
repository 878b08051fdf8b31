/** A session on the screen: a pure function of the pages that were read and the events that followed. */

import type { Message, MessagesPage, ReplyDelivery, SessionEvent, Turn } from "../api/types";
import { emptyTurn, isActive, isEnded, isNote, type TurnView } from "./items";
import { feed } from "./live";
import { describe, settle } from "./settled";

export interface Conversation {
  id: string;
  version: number;
  position: number;
  /** The path to the head, oldest first. */
  turns: TurnView[];
  /** Turns that wait for their turn. */
  queue: TurnView[];
  /** Where the page before the oldest turn begins; null: there is none. */
  before: string | null;
  /** Set when the page must read the messages again: the events alone do not tell the new path. */
  isStale: boolean;
  /** A turn whose place in the path is not known yet. */
  unplaced: string | null;
  /** Files that were read before this position may be others now: it grows when the messages are read, and after a restore. */
  filesFrom: number;
}

/** The newest page of a session; events after `replayFrom(page)` complete it. */
export function open(id: string, page: MessagesPage): Conversation {
  const turns = group(page.messages, page.turns);
  const path = turns.filter((turn) => turn.state !== "queued");
  const queued = turns.filter((turn) => turn.state === "queued");
  // A queued turn with nothing before it is simply about to start: it belongs into the conversation.
  const isBusy = path.some((turn) => isActive(turn.state));
  if (!isBusy && queued.length) path.push(queued.shift()!);
  return {
    id,
    version: page.version,
    position: replayFrom(page),
    turns: path,
    queue: queued,
    before: page.cursor ?? null,
    isStale: false,
    unplaced: null,
    filesFrom: page.position,
  };
}

/** The position after which the stream must be followed, so that active turns are rebuilt. */
export function replayFrom(page: MessagesPage): number {
  return page.replay_from == null ? page.position : Math.min(page.replay_from, page.position);
}

/** Put an older page before what is there. */
export function prepend(conversation: Conversation, page: MessagesPage): Conversation {
  const known = new Set(conversation.turns.map((turn) => turn.id));
  const older = group(page.messages, page.turns);
  const turns = [...conversation.turns];
  const first = turns[0];
  // A page may begin in the middle of a turn: its earlier messages are joined with the later ones.
  const cut = first && older.find((turn) => turn.id === first.id);
  if (cut && first) {
    turns[0] = { ...first, asked: first.asked ?? cut.asked, items: joinItems(cut, first) };
  }
  return {
    ...conversation,
    before: page.cursor ?? null,
    turns: [...older.filter((turn) => !known.has(turn.id)), ...turns],
  };
}

function joinItems(cut: TurnView, first: TurnView): TurnView["items"] {
  const ids = new Set(first.items.map((item) => item.id));
  return [...cut.items.filter((item) => !ids.has(item.id)), ...first.items];
}

/** Messages and turn rows into turns, in the order of the transcript. */
export function group(messages: Message[], rows: Turn[]): TurnView[] {
  const byTurn = new Map<string, Message[]>();
  for (const message of messages) {
    const known = byTurn.get(message.turn_id);
    if (known) known.push(message);
    else byTurn.set(message.turn_id, [message]);
  }
  const rowOf = new Map(rows.map((row) => [row.id, row]));
  for (const row of rows) if (!byTurn.has(row.id)) byTurn.set(row.id, []);
  return [...byTurn].map(([id, list]) => {
    const row = rowOf.get(id) ?? null;
    // An active turn's answer comes from its events; its messages hold only what the user said.
    if (row && !isEnded(row.state)) {
      const asked = list.find((message) => message.role === "user" && !message.is_steering && !isNote(message)) ?? null;
      return { ...describe(emptyTurn(id, row.created_at), row), asked: asked ?? spoken(row), attempts: 0 };
    }
    return settle(row, id, list);
  });
}

/** A queued turn's message may not be in the transcript yet; its words are on its row. */
function spoken(row: Turn): Message | null {
  if (!row.text) return null;
  return {
    id: `asked:${row.id}`,
    turn_id: row.id,
    role: "user",
    parts: [{ type: "text", text: row.text }],
    created_at: row.created_at,
  };
}

export function apply(conversation: Conversation, event: SessionEvent): Conversation {
  const payload = event.event;
  // A snapshot also comes where the past has changed, as after a backup was restored: it may stand further back.
  if (event.position <= conversation.position && payload.kind !== "snapshot") return conversation;
  const next = { ...conversation, position: event.position };
  if (payload.kind === "session.changed") {
    return { ...next, version: payload.version, isStale: next.isStale || !isHarmless(payload.what) };
  }
  if (payload.kind === "snapshot") return { ...next, isStale: true };
  if (payload.kind === "files.restored") return { ...next, filesFrom: event.position };
  if (payload.kind === "reply.sent" || payload.kind === "reply.unknown") return recordDelivery(next, payload.turn_id, payload.reply);
  if (!event.turn_id) return next;
  if (payload.kind === "turn.accepted") return acceptTurn(next, event, payload.message, payload.place ?? 0);
  return feedTurn(next, event, event.turn_id);
}

/** What became of a turn's answer in one chat. */
export function recordDelivery(conversation: Conversation, turnId: string, reply: ReplyDelivery): Conversation {
  const turns = conversation.turns.map((turn) => {
    if (turn.id !== turnId) return turn;
    return { ...turn, replies: [...turn.replies.filter((known) => known.chat_id !== reply.chat_id), reply] };
  });
  return { ...conversation, turns };
}

/** The row of a turn, read when the conversation was at a position: it is old if events have come since. */
export function noteRelease(conversation: Conversation, row: Turn, position: number): Conversation {
  if (conversation.position !== position || row.state !== "running" || !row.is_ready) return conversation;
  const turns = conversation.turns.map((turn) => (turn.id === row.id ? { ...turn, releasedEpoch: row.epoch } : turn));
  return { ...conversation, turns };
}

/** Names and settings change nothing in the transcript. */
function isHarmless(what: string): boolean {
  return what === "settings" || what === "title";
}

function acceptTurn(conversation: Conversation, event: SessionEvent, message: Message, place: number): Conversation {
  const id = event.turn_id!;
  if (find(conversation, id)) return conversation;
  const turn: TurnView = { ...emptyTurn(id, event.at), asked: message };
  const isBusy = place > 0 || conversation.turns.some((known) => isActive(known.state));
  if (isBusy) return { ...conversation, queue: [...conversation.queue, turn] };
  return { ...conversation, turns: [...conversation.turns, turn], unplaced: id };
}

function feedTurn(conversation: Conversation, event: SessionEvent, id: string): Conversation {
  const inQueue = conversation.queue.find((turn) => turn.id === id);
  if (inQueue) {
    const turn = withVersion(feed(inQueue, event), event);
    const queue = conversation.queue.filter((known) => known.id !== id);
    if (turn.state === "queued") return { ...conversation, queue: [...queue, turn] };
    // Taken out of the queue before it ran: nothing of it is left to show.
    if (turn.state === "cancelled" && turn.startedAt === null) return { ...conversation, queue };
    return { ...conversation, queue, turns: [...conversation.turns, turn], unplaced: id };
  }
  const index = conversation.turns.findIndex((turn) => turn.id === id);
  const known = conversation.turns[index];
  if (!known) {
    return event.event.kind === "turn.started" ? { ...conversation, isStale: true } : conversation;
  }
  // Late output of an ended turn: the server threads it in and says so; only a resumption reopens it.
  if (isEnded(known.state) && event.event.kind !== "turn.resumed") return conversation;
  const turns = [...conversation.turns];
  turns[index] = feed(known, event);
  // A turn gets its parent when it starts: only then can be told where it hangs.
  const unplaced = event.event.kind === "turn.started" ? id : conversation.unplaced;
  return { ...conversation, turns, unplaced, version: versionOf(event) ?? conversation.version };
}

function withVersion(turn: TurnView, event: SessionEvent): TurnView {
  return event.event.kind === "turn.started" ? { ...turn, startedAt: event.at } : turn;
}

function versionOf(event: SessionEvent): number | undefined {
  const payload = event.event as { version?: number };
  return payload.version || undefined;
}

function find(conversation: Conversation, id: string): TurnView | undefined {
  return (
    conversation.turns.find((turn) => turn.id === id) ?? conversation.queue.find((turn) => turn.id === id)
  );
}

/** A queued turn at another place of the queue, as the server will have it. */
export function moveQueued(conversation: Conversation, id: string, place: number): Conversation {
  const turn = conversation.queue.find((known) => known.id === id);
  if (!turn) return conversation;
  const queue = conversation.queue.filter((known) => known.id !== id);
  queue.splice(place, 0, turn);
  return { ...conversation, queue };
}

/** The queue in the order that is shown; what is new to it comes last. */
export function inOrderOf(fresh: Conversation, shown: Conversation): Conversation {
  const placeOf = (turn: TurnView): number => shown.queue.findIndex((known) => known.id === turn.id) >>> 0;
  return { ...fresh, queue: [...fresh.queue].sort((left, right) => placeOf(left) - placeOf(right)) };
}

/** The server's answer to a message that this page sent: durable, though its event may not be here yet. */
export function acknowledge(conversation: Conversation, row: Turn, message: Message): Conversation {
  if (find(conversation, row.id)) return conversation;
  const turn: TurnView = { ...describe(emptyTurn(row.id, row.created_at), row), asked: message };
  const isBusy = row.state === "queued" && conversation.turns.some((known) => isActive(known.state));
  return isBusy
    ? { ...conversation, queue: [...conversation.queue, turn] }
    : { ...conversation, turns: [...conversation.turns, turn] };
}

/** The row of a turn arrived: it says where the turn hangs. */
export function place(conversation: Conversation, row: Turn): Conversation {
  const index = conversation.turns.findIndex((turn) => turn.id === row.id);
  const unplaced = conversation.unplaced === row.id ? null : conversation.unplaced;
  if (index < 0) return { ...conversation, unplaced };
  const before = conversation.turns[index - 1]?.id ?? null;
  const parent = row.parent_id ?? null;
  const hangsElsewhere = row.state !== "queued" && parent !== before && !(before === null && conversation.before);
  const turns = [...conversation.turns];
  turns[index] = {
    ...turns[index]!,
    kind: row.kind ?? "message",
    sibling: row.sibling ?? 1,
    siblings: row.siblings ?? 1,
    siblingIds: row.sibling_ids ?? [],
    parentId: row.parent_id ?? null,
  };
  if (!hangsElsewhere) return { ...conversation, turns, unplaced };
  // Another version of an earlier message: what followed that one is no longer on the path.
  const at = turns.findIndex((turn) => turn.id === parent);
  if (parent !== null && at < 0) return { ...conversation, turns, unplaced, isStale: true };
  if (parent === null && conversation.before) return { ...conversation, turns, unplaced, isStale: true };
  return { ...conversation, turns: [...turns.slice(0, at + 1), ...turns.slice(index)], unplaced };
}

/** This page asked for another version of a turn, and the server has it: it takes the place of the old one. */
export function replaceTurn(conversation: Conversation, oldId: string, row: Turn, message: Message | null): Conversation {
  const index = conversation.turns.findIndex((turn) => turn.id === oldId);
  if (index < 0) return { ...conversation, isStale: true };
  const known = find(conversation, row.id);
  const turn: TurnView = known ?? { ...describe(emptyTurn(row.id, row.created_at), row), asked: message };
  const queue = conversation.queue.filter((other) => other.id !== row.id);
  return { ...conversation, turns: [...conversation.turns.slice(0, index), turn], queue };
}

export function activeTurn(conversation: Conversation): TurnView | null {
  return conversation.turns.find((turn) => isActive(turn.state)) ?? null;
}
