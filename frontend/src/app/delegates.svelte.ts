import { Away, Problem, type Api } from "../api/client";
import type { Ask, Asks, Delegate, DelegateList, FileChange } from "../api/types";
import { isAtWork } from "../state/delegates";
import type { AskState, CallItem } from "../state/items";
import { wishedCall } from "../state/items";

const lookMs = 2_000;

/** An approval or question of a delegate, as the card of its parent shows it. */
export interface DelegateAsk {
  delegate: string;
  ask: AskState;
  call: CallItem | null;
}

/** The delegates of one session, by the turn that they work for. Read anew while any is at work and in view. */
export class Delegates {
  private byTurn = $state.raw<ReadonlyMap<string, readonly Delegate[]>>(new Map());
  asks = $state.raw<readonly DelegateAsk[]>([]);
  /** Turns in view, and by how many views. */
  private readonly watched = new Map<string, number>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isReading = false;
  private isStale = false;

  constructor(
    readonly api: Api,
    private readonly pause = lookMs,
  ) {}

  /** Each is followed by its own delegates. Null: not read yet. */
  of(turnId: string): readonly Delegate[] | null {
    return this.byTurn.get(turnId) ?? null;
  }

  ofCall(turnId: string, callId: string): readonly Delegate[] | null {
    const all = this.of(turnId);
    if (!all) return null;
    // Those further down belong to the one above them.
    const kept = new Set<string>();
    return all.filter((delegate) => {
      const isHere = delegate.parent_turn === turnId ? delegate.call_id === callId : kept.has(delegate.parent_session);
      if (isHere) kept.add(delegate.id);
      return isHere;
    });
  }

  askOf(delegate: string): DelegateAsk | null {
    return this.asks.find((one) => one.delegate === delegate) ?? null;
  }

  watch(turnId: string): () => void {
    this.watched.set(turnId, (this.watched.get(turnId) ?? 0) + 1);
    // Those at work may have ended while nobody looked.
    if (this.of(turnId)?.some(isAtWork) ?? true) void this.look();
    return () => {
      const left = (this.watched.get(turnId) ?? 1) - 1;
      if (left) this.watched.set(turnId, left);
      else this.watched.delete(turnId);
    };
  }

  /** Read now: a delegate has started or ended, or was asked to do something. */
  async look(): Promise<void> {
    clearTimeout(this.timer);
    if (this.isReading) {
      this.isStale = true;
      return;
    }
    this.isReading = true;
    try {
      await Promise.all([...this.watched.keys()].map((turnId) => this.read(turnId)));
    } finally {
      this.isReading = false;
    }
    if (this.isStale) {
      this.isStale = false;
      await this.look();
    } else this.plan();
  }

  private plan(): void {
    clearTimeout(this.timer);
    const needed = [...this.watched.keys()].some((turnId) => !this.of(turnId) || this.of(turnId)!.some(isAtWork));
    if (needed) this.timer = setTimeout(() => (document.visibilityState === "visible" ? void this.look() : this.plan()), this.pause);
  }

  private async read(turnId: string): Promise<void> {
    try {
      const { items } = await this.api.get<DelegateList>(`api/turns/${turnId}/delegates`);
      const asked = items.filter((delegate) => delegate.asks && isAtWork(delegate)).map((delegate) => delegate.id);
      const known = new Set(items.map((delegate) => delegate.id));
      const others = this.asks.filter((one) => !known.has(one.delegate));
      this.asks = asked.length ? [...others, ...(await this.readAsks(asked))] : others;
      this.byTurn = new Map(this.byTurn).set(turnId, items);
    } catch (error) {
      // Shown as it was; it is read again while the turn is in view.
      if (!(error instanceof Away || error instanceof Problem)) throw error;
      if (error instanceof Problem && !this.of(turnId)) this.byTurn = new Map(this.byTurn).set(turnId, []);
    }
  }

  private async readAsks(ids: readonly string[]): Promise<DelegateAsk[]> {
    const { items } = await this.api.get<Asks>("api/approvals");
    return ids.flatMap((id) => items.filter((ask) => ask.session_id === id).map((ask) => ({ delegate: id, ...shown(ask) })));
  }

  // --- what the user asks for -----------------------------------------------------------------

  async stop(...delegates: readonly Delegate[]): Promise<void> {
    await Promise.all(delegates.filter(isAtWork).map((delegate) => this.api.post(`api/delegates/${delegate.id}/stop`)));
    await this.look();
  }

  /** Returns the files that were changed here meanwhile: then nothing was written, and a choice is needed. */
  async apply(delegate: Delegate, onConflict: "keep" | "restore" | "both" | null = null): Promise<FileChange[]> {
    try {
      await this.api.post(`api/delegates/${delegate.id}/apply`, { body: onConflict ? { on_conflict: onConflict } : {}, timeoutMs: 120_000 });
    } catch (error) {
      if (!(error instanceof Problem) || error.code !== "files_conflict" || onConflict) throw error;
      return error.conflicts;
    }
    await this.look();
    return [];
  }

  async refuse(delegate: Delegate): Promise<void> {
    await this.api.post(`api/delegates/${delegate.id}/refuse`);
    await this.look();
  }
}

function shown(ask: Ask): { ask: AskState; call: CallItem | null } {
  const state: AskState = {
    id: ask.id,
    topic: ask.topic,
    text: ask.text ?? "",
    choices: ask.choices ?? [],
    // The server refuses what does not apply; these always do.
    options: ask.topic === "approval" ? (ask.choices?.length ? ask.choices : ["once", "deny"]) : [],
    at: ask.created_at,
    answer: null,
    ...(ask.files ? { files: ask.files } : {}),
  };
  const call = ask.call_id && ask.name ? { ...wishedCall(0, ask.call_id, ask.name, ask.arguments ?? ""), label: ask.label ?? "", ask: state } : null;
  return { ask: state, call };
}
