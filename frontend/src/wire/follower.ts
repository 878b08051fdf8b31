/** Keeps one event stream open and resumes it exactly where it broke. Knows no page and no worker. */

import { SseReader, type Frame } from "./sse";

export type LinkState = "connecting" | "open" | "lost" | "signed_out";

export interface FollowerParts {
  fetch: typeof fetch;
  /** The address for these sessions. */
  address: (sessions: string[]) => string;
  onFrames: (frames: Frame[]) => void;
  onState: (state: LinkState) => void;
  /** Between 0 and 1; spreads the reconnects of many tabs after a restart. */
  random: () => number;
}

const firstDelayMs = 250;
const delayMaxMs = 5_000;
/** The server beats every 15 s; a stream that is silent for longer than two beats is dead. */
export const silenceMaxMs = 40_000;

export class Follower {
  private cursors = new Map<string, number>();
  private generation = 0;
  private failures = 0;
  private abort: AbortController | null = null;
  private retry: ReturnType<typeof setTimeout> | null = null;
  private watchdog: ReturnType<typeof setTimeout> | null = null;
  private isStopped = true;
  state: LinkState = "connecting";

  constructor(private readonly parts: FollowerParts) {}

  /** Follow these sessions, each after its position, on a fresh connection. */
  start(cursors: ReadonlyMap<string, number>): void {
    this.cursors = new Map(cursors);
    this.isStopped = false;
    this.connect();
  }

  /** Where the next connection would go on: the last position that was handed out. */
  cursor(session: string): number | undefined {
    return this.cursors.get(session);
  }

  advance(session: string, position: number): void {
    const known = this.cursors.get(session);
    if (known !== undefined && position > known) this.cursors.set(session, position);
  }

  /** The network changed or the user signed in: try now rather than after the delay. */
  poke(): void {
    if (this.isStopped || this.state === "open") return;
    this.failures = 0;
    this.connect();
  }

  stop(): void {
    this.isStopped = true;
    this.drop();
  }

  private drop(): void {
    // From here on nothing that the old connection still delivers counts.
    this.generation += 1;
    this.abort?.abort();
    this.abort = null;
    if (this.retry) clearTimeout(this.retry);
    if (this.watchdog) clearTimeout(this.watchdog);
    this.retry = this.watchdog = null;
  }

  private connect(): void {
    this.drop();
    const generation = this.generation;
    const abort = new AbortController();
    this.abort = abort;
    this.set(this.state === "open" ? "open" : "connecting");
    this.watch(generation);
    this.run(generation, abort).then(
      () => this.lost(generation),
      () => this.lost(generation),
    );
  }

  private async run(generation: number, abort: AbortController): Promise<void> {
    const sessions = [...this.cursors.keys()];
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (sessions.length) {
      headers["last-event-id"] = sessions.map((id) => `${id}:${this.cursors.get(id)}`).join(",");
    }
    const response = await this.parts.fetch(this.parts.address(sessions), {
      headers,
      signal: abort.signal,
      cache: "no-store",
      credentials: "same-origin",
    });
    if (generation !== this.generation) return;
    if (response.status === 401) {
      this.drop();
      this.set("signed_out");
      return;
    }
    if (!response.ok || !response.body) throw new Error(`The stream was refused (${response.status}).`);
    await this.pump(generation, response.body);
  }

  private async pump(generation: number, body: ReadableStream<Uint8Array>): Promise<void> {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    const sse = new SseReader();
    this.failures = 0;
    this.set("open");
    for (;;) {
      const { done, value } = await reader.read();
      if (generation !== this.generation || done) return;
      this.watch(generation);
      const frames = sse.read(decoder.decode(value, { stream: true }));
      if (frames.length) this.parts.onFrames(frames);
    }
  }

  private lost(generation: number): void {
    if (generation !== this.generation || this.isStopped) return;
    this.drop();
    this.set("lost");
    const delay = Math.min(delayMaxMs, firstDelayMs * 2 ** this.failures);
    this.failures += 1;
    this.retry = setTimeout(() => this.connect(), delay * (0.5 + this.parts.random() / 2));
  }

  private watch(generation: number): void {
    if (this.watchdog) clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => this.lost(generation), silenceMaxMs);
  }

  private set(state: LinkState): void {
    if (state === this.state) return;
    this.state = state;
    this.parts.onState(state);
  }
}
