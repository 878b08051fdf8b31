import { Api, Away, Problem, freshKey } from "../api/client";
import type { Accepted, Message, MessagesPage, Queue, ReplyDelivery, Session, SessionEvent, TakenBack, Turn } from "../api/types";
import { readText, writeText } from "../keep/disk";
import type { LocalFile, Unsent } from "../keep/unsent";
import * as conv from "../state/conversation";
import type { Conversation } from "../state/conversation";
import { attachmentsOf, openAsks, textOf, type TurnView } from "../state/items";
import type { Link } from "../wire/link";
import { Answers } from "./answers.svelte";
import type { FilesPlan, MoveAction, MoveFiles } from "./moves.svelte";
import { words } from "../words";
import { Delegates } from "./delegates.svelte";
import { Pace } from "./pace";
import type { SessionFiles } from "./session-files.svelte";

export type SessionStatus = "loading" | "ready" | "gone" | "failed";

/** What happened in a turn that a person may want to hear about. */
export type News = { turn: TurnView; what: "started" | "completed" | "failed" | "cancelled" | "interrupted" | "waiting" };

/** A message that the server has for a running turn. The turn takes it in after its step. */
export interface Steer {
  turnId: string;
  text: string;
  at: number;
}

const pageSize = 60;
/** On the way to a turn that is far back. */
const reachSize = 200;
/** For so long after a key, the next one is expected. */
const typingMs = 1_000;
const takeBackTries = 4;
const takeBackPauseMs = 500;

/** One open session: reads it, follows it, and carries out what the user asks of it. */
export class OpenSession {
  conversation = $state.raw<Conversation | null>(null);
  status = $state<SessionStatus>("loading");
  problem = $state("");
  /** Counts what the reader says here: a message, a changed one, a retry. */
  said = $state(0);
  readonly answers: Answers;
  /** The message that is being edited, said or still queued, as it is typed so far. */
  editing = $state<{ id: string; text: string } | null>(null);
  /** Sent into the running turn, and not taken in by it yet. */
  steers = $state.raw<readonly Steer[]>([]);
  /** The turn the user wants to stop while messages wait behind it. The question ends with the turn. */
  askingStop = $state<string | null>(null);
  /** What the Files tab shows; made with the first look at it (`filesOf`). */
  files: SessionFiles | null = null;
  /** The delegates of its turns. */
  readonly delegates: Delegates;
  /** The turns that were undone here, the first one first. */
  undone: string[] = [];
  private moves: Promise<void> = Promise.resolve();
  private moving = 0;
  private moved = 0;
  private pending: SessionEvent[] = [];
  private isPlanned = false;
  private hasWaited = false;
  private loads = 0;
  private readonly pace = new Pace();
  private readonly claimed = new Set<string>();
  private reading: Promise<void> | null = null;

  constructor(
    readonly id: string,
    readonly api: Api,
    private readonly link: Link,
    private readonly onNews: (opened: OpenSession, news: News) => void,
    /** Whether something was typed since the last frame, and when the last key was pressed. */
    private readonly typed: { isNew: boolean; at: number } = { isNew: false, at: -Infinity },
  ) {
    this.answers = new Answers(api);
    this.delegates = new Delegates(api);
    // The server has them but shows them only when they are taken in: a reload must not hide them.
    const kept = readText(`everturn.steers.${id}`);
    if (kept) this.steers = JSON.parse(kept) as Steer[];
  }

  /** Read the newest page and follow what comes after it. */
  async load(): Promise<void> {
    this.loads += 1;
    const load = this.loads;
    const { moved } = this;
    try {
      const [page, queue] = await Promise.all([
        this.api.get<MessagesPage>(`api/sessions/${this.id}/messages`, { query: { limit: pageSize } }),
        this.api.get<Queue>(`api/sessions/${this.id}/queue`).catch((error: unknown) => {
          if (error instanceof Problem) return { items: [] };
          throw error;
        }),
      ]);
      if (load !== this.loads) return;
      this.pending = [];
      const known = new Set(page.turns.map((turn) => turn.id));
      const turns = [...page.turns, ...queue.items.filter((turn) => !known.has(turn.id))];
      const before = this.conversation;
      const fresh = this.keepOlder(conv.open(this.id, { ...page, turns }));
      // What was read before a move was carried out would take the row back from under the user's hand.
      this.conversation = before && (this.moving || moved !== this.moved) ? conv.inOrderOf(fresh, before) : fresh;
      this.status = "ready";
      this.settleSteers();
      this.tellRead(before, this.conversation);
      this.link.want(this.id, conv.replayFrom(page));
    } catch (error) {
      if (load !== this.loads) return;
      const isGone = error instanceof Problem && (error.status === 404 || error.status === 410 || error.status === 422);
      if (!this.conversation || isGone) this.status = isGone ? "gone" : "failed";
      this.problem = error instanceof Error ? error.message : String(error);
    }
  }

  /** A reload of the newest page must not throw away what was scrolled to, if it still joins on. */
  private keepOlder(fresh: Conversation): Conversation {
    const old = this.conversation;
    const first = fresh.turns[0];
    if (!old || !first || !fresh.before) return fresh;
    const at = old.turns.findIndex((turn) => turn.id === first.id);
    if (at <= 0) return fresh;
    return { ...fresh, turns: [...old.turns.slice(0, at), ...fresh.turns], before: old.before };
  }

  hear(events: SessionEvent[]): void {
    this.pending.push(...events);
    if (!this.isPlanned) this.plan();
  }

  private plan(): void {
    this.isPlanned = true;
    // Once per frame however many events came; a hidden page has no frames.
    if (document.visibilityState === "visible") requestAnimationFrame(() => this.frame());
    else setTimeout(() => this.flush(), 200);
  }

  /** A frame in which a key is shown is not for the answer as well: that comes with the next one. */
  private frame(): void {
    const isTyping = this.typed.isNew;
    this.typed.isNew = false;
    if (isTyping && !this.hasWaited) {
      this.hasWaited = true;
      requestAnimationFrame(() => this.frame());
      return;
    }
    this.hasWaited = false;
    const start = performance.now();
    this.flush(this.pace.share(this.pending, start - this.typed.at < typingMs));
    if (!this.isPlanned && this.pending.length) this.plan();
    // A task of its own comes after the frame was laid out and painted: that is a part of what a key waits for.
    setTimeout(() => this.pace.took(performance.now() - start));
  }

  private flush(count = this.pending.length): void {
    this.isPlanned = false;
    const events = this.pending.splice(0, count);
    const before = this.conversation;
    if (!before || !events.length) return;
    let next = before;
    for (const event of events) next = conv.apply(next, event);
    this.conversation = next;
    this.settleSteers();
    this.tell(before, next);
    if (events.some((event) => event.event.kind === "delegate.started" || event.event.kind === "delegate.ended")) void this.delegates.look();
    if (next.isStale) void this.load();
    else if (next.unplaced) void this.place(next.unplaced);
  }

  /** A turn may have begun, or ended, while it was being read. A turn that ended before the session was opened is no news. */
  private tellRead(before: Conversation | null, after: Conversation): void {
    const isNews = (turn: TurnView) => turn === conv.activeTurn(after) || before?.turns.some((known) => known.id === turn.id);
    this.tell(before, { ...after, turns: after.turns.filter(isNews) });
  }

  private tell(before: Conversation | null, after: Conversation): void {
    for (const turn of after.turns) {
      const old = before?.turns.find((known) => known.id === turn.id);
      if (old === turn || old?.state === turn.state) continue;
      const what = turn.state === "running" ? (old?.state === "waiting" ? null : "started") : turn.state;
      // A turn that waits for delegates alone waits for nobody.
      if (what === "waiting" && !openAsks(turn).length) continue;
      if (what && what !== "queued") this.onNews(this, { turn, what });
    }
  }

  private async place(id: string): Promise<void> {
    if (this.conversation) this.conversation = { ...this.conversation, unplaced: null };
    try {
      const row = await this.api.get<Turn>(`api/turns/${id}`);
      if (!this.conversation) return;
      this.conversation = conv.place(this.conversation, row);
      if (this.conversation.isStale) await this.load();
    } catch (error) {
      // Only the "2 of 3" is missing then; the next read brings it.
      if (!(error instanceof Error)) throw error;
    }
  }

  /** Read the page before the oldest turn. Calls at the same time share one reading. */
  older(limit = pageSize): Promise<void> {
    this.reading ??= this.readOlder(limit).finally(() => (this.reading = null));
    return this.reading;
  }

  private async readOlder(limit: number): Promise<void> {
    const before = this.conversation?.before;
    if (!before) return;
    const page = await this.api.get<MessagesPage>(`api/sessions/${this.id}/messages`, { query: { before, limit } });
    if (this.conversation?.before === before) this.conversation = conv.prepend(this.conversation, page);
  }

  /** Read back until the turn is there; false if it is not on this path. */
  async reach(turnId: string): Promise<boolean> {
    while (this.conversation) {
      if (this.conversation.turns.some((turn) => turn.id === turnId)) return true;
      if (!this.conversation.before) return false;
      await this.older(reachSize);
    }
    return false;
  }

  /** Read back to the first message. */
  async readAll(): Promise<void> {
    while (this.conversation?.before) await this.older(reachSize);
  }

  accepted(entry: Unsent, accepted: Accepted): void {
    const before = this.conversation;
    if (accepted.is_steering) this.steered(accepted.turn.id, entry.text);
    if (!before || accepted.is_steering) return;
    this.conversation = conv.acknowledge(before, accepted.turn, {
      id: `asked:${accepted.turn.id}`,
      turn_id: accepted.turn.id,
      role: "user",
      parts: [
        { type: "text", text: entry.text },
        ...entry.files.map((file) => ({
          type: "attachment" as const,
          file_id: file.fileId ?? "",
          name: file.name,
          media_type: file.type,
          size: file.size,
        })),
      ],
      created_at: accepted.turn.created_at,
    });
    // The server may have begun it already.
    this.tell(before, this.conversation);
  }

  private steered(turnId: string, text: string): void {
    // The turn may have taken it in before the answer was here.
    if (!this.claim(turnId, text)) this.keepSteers([...this.steers, { turnId, text, at: Date.now() }]);
  }

  /** Find a message that the turn has taken in and that was not counted yet. */
  private claim(turnId: string, text: string): boolean {
    const turn = this.conversation?.turns.find((known) => known.id === turnId);
    const found = turn?.items.find((item) => item.kind === "steer" && !this.claimed.has(item.id) && textOf(item.message) === text);
    if (found) this.claimed.add(found.id);
    return !!found;
  }

  /** Let go of what turns have taken in, or have handed on to the queue at their end. */
  private settleSteers(): void {
    if (!this.steers.length) return;
    const isActive = (steer: Steer) => this.active?.id === steer.turnId;
    const left = this.steers.filter((steer) => isActive(steer) && !this.claim(steer.turnId, steer.text));
    if (left.length !== this.steers.length) this.keepSteers(left);
  }

  private keepSteers(steers: readonly Steer[]): void {
    this.steers = steers;
    writeText(`everturn.steers.${this.id}`, steers.length ? JSON.stringify(steers) : null);
  }

  get active(): TurnView | null {
    return this.conversation ? conv.activeTurn(this.conversation) : null;
  }

  get last(): TurnView | null {
    return this.conversation?.turns[this.conversation.turns.length - 1] ?? null;
  }

  /** The turn that runs or is about to. */
  get current(): TurnView | null {
    return this.active ?? (this.last?.state === "queued" ? this.last : null);
  }

  get isBusy(): boolean {
    return !!this.current;
  }

  // --- what the user asks for -----------------------------------------------------------------

  async stop(): Promise<void> {
    const turn = this.active ?? (this.last?.state === "queued" ? this.last : null);
    if (turn) await this.api.post(`api/turns/${turn.id}/cancel`);
  }

  resume(turn: TurnView): Promise<unknown> {
    return this.api.post(`api/turns/${turn.id}/resume`);
  }

  async retry(turn: TurnView, model?: string, files: MoveFiles = {}): Promise<void> {
    await this.again("retry", turn, { turn_id: turn.id, ...(model ? { model } : {}), ...files }, turn.asked);
  }

  async edit(turn: TurnView, text: string, files: MoveFiles = {}): Promise<void> {
    const kept = turn.asked?.parts.filter((part) => part.type !== "text") ?? [];
    const asked = turn.asked ? { ...turn.asked, parts: [{ type: "text" as const, text }, ...kept] } : null;
    await this.again("edit", turn, { turn_id: turn.id, text, ...files }, asked);
  }

  private async again(name: string, turn: TurnView, body: Record<string, unknown>, asked: Message | null): Promise<void> {
    const accepted = await this.api.post<Accepted>(`api/sessions/${this.id}/${name}`, { key: freshKey(), body });
    const before = this.conversation;
    if (!before) return;
    this.conversation = conv.replaceTurn(before, turn.id, accepted.turn, asked);
    this.said += 1;
    this.tell(before, this.conversation);
    if (this.conversation.isStale) await this.load();
  }

  startEditing(turn: TurnView): void {
    this.editing = { id: turn.id, text: textOf(turn.asked) };
  }

  /** The newest message that can be edited: one that is queued, else the last one said, if nothing runs. */
  get editable(): TurnView | null {
    const turns = this.conversation?.queue.length ? this.conversation.queue : this.isBusy ? [] : (this.conversation?.turns ?? []);
    return turns.findLast((turn) => turn.kind === "message" && textOf(turn.asked)) ?? null;
  }

  /** Show another answer to the same message. */
  select(turnId: string, files: MoveFiles = {}): Promise<void> {
    return this.move("select", { turn_id: turnId, ...files });
  }

  undo(files: MoveFiles = {}): Promise<void> {
    return this.move("undo", { ...files });
  }
  redo(files: MoveFiles = {}): Promise<void> {
    return this.move("redo", { ...files });
  }

  /** What a move would do to the files. A move that is refused for another reason says so itself. */
  async filesPlan(action: MoveAction, turnId: string | null): Promise<FilesPlan> {
    const query = { action, turn_id: action === "undo" || action === "redo" ? undefined : (turnId ?? undefined) };
    try {
      return await this.api.get<FilesPlan>(`api/sessions/${this.id}/files/plan`, { query });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      return {};
    }
  }
  /** Does a server still run this turn? One that was killed could not say that it stopped. */
  async checkRun(turnId: string): Promise<void> {
    const position = this.conversation?.position ?? 0;
    const row = await this.api.get<Turn>(`api/turns/${turnId}`);
    if (this.conversation) this.conversation = conv.noteRelease(this.conversation, row, position);
  }

  /** Of an answer that may not have arrived: send it again, or take it as arrived. */
  async decideDelivery(turn: TurnView, reply: ReplyDelivery, how: "resend" | "arrived"): Promise<void> {
    for (const part of reply.parts ?? []) await this.api.post(`api/gateway/parts/${part}/${how}`);
    const state = how === "resend" ? "waiting" : "sent";
    if (this.conversation) this.conversation = conv.recordDelivery(this.conversation, turn.id, { ...reply, state, parts: [], at: Date.now() });
  }

  clear(): Promise<void> {
    return this.move("clear");
  }
  compact(focus = ""): Promise<void> {
    return this.move("compact", focus ? { focus } : {});
  }

  branch(turn: TurnView | null): Promise<Session> {
    return this.api.post<Session>(`api/sessions/${this.id}/branch`, {
      key: freshKey(),
      body: turn ? { turn_id: turn.id } : {},
    });
  }

  private async move(name: string, body: Record<string, unknown> = {}): Promise<void> {
    const bodyOrNothing = Object.keys(body).length ? body : {};
    await this.api.post(`api/sessions/${this.id}/${name}`, { key: freshKey(), body: bodyOrNothing });
    await this.load();
  }

  async editQueued(turn: TurnView, text: string): Promise<void> {
    await this.api.patch(`api/sessions/${this.id}/queue/${turn.id}`, { body: { text } });
    await this.load();
  }

  /** Give a queued message another place: shown at once, and one move after the other. */
  moveQueued(turn: TurnView, place: number): Promise<void> {
    const before = this.conversation;
    if (!before) return Promise.resolve();
    const seen = waiting(before);
    this.conversation = conv.moveQueued(before, turn.id, place);
    // One that is about to start stands in the conversation already; to the server it is queued.
    const to = place + seen.length - before.queue.length;
    this.moving += 1;
    const move = this.moves.then(() => this.carryOut(turn.id, to, seen));
    this.moves = move.catch(() => undefined);
    return move;
  }

  /** The move holds for the queue that was seen: the version is read before it, and must hold until then. */
  private async carryOut(id: string, place: number, seen: string[]): Promise<void> {
    try {
      const { version } = await this.api.get<Session>(`api/sessions/${this.id}`);
      const { items } = await this.api.get<Queue>(`api/sessions/${this.id}/queue`);
      if (items.map((row) => row.id).join() !== seen.join()) throw new Problem(409, "stale_version", words.queueChanged);
      await this.api.patch(`api/sessions/${this.id}/queue/${id}`, { body: { place }, version });
      this.moving -= 1;
      this.moved += 1;
    } catch (error) {
      this.moving -= 1;
      await this.load();
      throw error;
    }
  }

  async removeQueued(turn: TurnView): Promise<void> {
    await this.api.delete(`api/sessions/${this.id}/queue/${turn.id}`);
    if (this.conversation) {
      const queue = this.conversation.queue.filter((known) => known.id !== turn.id);
      this.conversation = { ...this.conversation, queue };
    }
  }

  /** How many messages would start once the turn stops: those queued, and those it has not taken in. */
  get waiting(): number {
    return (this.conversation?.queue.length ?? 0) + this.steers.filter((steer) => steer.turnId === this.active?.id).length;
  }

  /** Stop, and take back what waits in the same step: else it would run at once. */
  async stopAll(): Promise<{ text: string; files: LocalFile[] }> {
    const turn = this.current;
    if (!turn) return { text: "", files: [] };
    const messages = await this.takenBack(turn.id);
    this.keepSteers(this.steers.filter((steer) => steer.turnId !== turn.id));
    return { text: messages.map(textOf).filter(Boolean).join("\n\n"), files: messages.flatMap(filesOf) };
  }

  /** One key for every try: if an answer is lost, the next one brings the same messages. */
  private async takenBack(turnId: string): Promise<readonly Message[]> {
    const key = freshKey();
    for (let tries = 1; ; tries += 1) {
      try {
        return (await this.api.post<TakenBack>(`api/turns/${turnId}/take-back`, { key })).messages ?? [];
      } catch (error) {
        if (!(error instanceof Away) || tries === takeBackTries) throw error;
        await new Promise((resolve) => setTimeout(resolve, takeBackPauseMs * tries));
      }
    }
  }
}

/** A message's attachments as the composer holds them. The server has their bytes. */
function filesOf(message: Message): LocalFile[] {
  return attachmentsOf(message).map((part) => ({ id: freshKey(), name: part.name, type: part.media_type, size: part.size, fileId: part.file_id }));
}

/** The turns that wait to run, in their order. */
function waiting(conversation: Conversation): string[] {
  return [...conversation.turns.filter((turn) => turn.state === "queued"), ...conversation.queue].map((turn) => turn.id);
}
