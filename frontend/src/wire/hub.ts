/** Shares one event stream among many readers (tabs), each with its own cursors. */

import type { ListEvent, SessionEvent } from "../api/types";
import { Follower, type FollowerParts, type LinkState } from "./follower";
import type { Frame } from "./sse";

/** What a tab says. `want` is complete: sessions that it does not name are no longer followed by it. */
export type ToHub =
  | { type: "want"; sessions: Record<string, { after: number; token: number }> }
  | { type: "poke" }
  | { type: "alive" }
  | { type: "bye" };

export type FromHub =
  | { type: "events"; session: string; token: number; events: SessionEvent[] }
  | { type: "list"; events: ListEvent[] }
  | { type: "state"; state: LinkState }
  | { type: "ping" };

export interface Port {
  send(message: FromHub): void;
}

interface Reader {
  port: Port;
  sessions: Map<string, { cursor: number; token: number }>;
  heardAt: number;
}

export type HubParts = Omit<FollowerParts, "onFrames" | "onState"> & { now: () => number };

/** A tab that has not answered for so long has crashed or sleeps; awake, it says what it wants again. */
const silentTabMaxMs = 120_000;

export class Hub {
  private readonly readers = new Map<Port, Reader>();
  private readonly follower: Follower;
  private isRunning = false;
  private isPlanned = false;

  constructor(private readonly parts: HubParts) {
    this.follower = new Follower({
      ...parts,
      onFrames: (frames) => this.deliver(frames),
      onState: (state) => this.broadcast({ type: "state", state }),
    });
  }

  hear(port: Port, message: ToHub): void {
    if (message.type === "bye") {
      this.readers.delete(port);
      if (!this.readers.size) this.pause();
      return;
    }
    const reader = this.reader(port);
    reader.heardAt = this.parts.now();
    if (message.type === "poke") this.follower.poke();
    if (message.type === "want") this.want(reader, message.sessions);
  }

  /** Ask every tab whether it is there and forget those that have been silent for long. */
  tick(): void {
    const oldest = this.parts.now() - silentTabMaxMs;
    for (const [port, reader] of this.readers) {
      if (reader.heardAt < oldest) this.readers.delete(port);
      else port.send({ type: "ping" });
    }
    if (!this.readers.size) this.pause();
  }

  pause(): void {
    this.isRunning = false;
    this.follower.stop();
  }

  private reader(port: Port): Reader {
    let reader = this.readers.get(port);
    if (!reader) {
      reader = { port, sessions: new Map(), heardAt: this.parts.now() };
      this.readers.set(port, reader);
      port.send({ type: "state", state: this.follower.state });
    }
    return reader;
  }

  private want(reader: Reader, sessions: Record<string, { after: number; token: number }>): void {
    const before = reader.sessions;
    reader.sessions = new Map();
    for (const [id, wish] of Object.entries(sessions)) {
      const known = before.get(id);
      // The same wish again (a tab that woke up) may know more than we delivered, never less.
      const cursor = known?.token === wish.token ? Math.max(known.cursor, wish.after) : wish.after;
      reader.sessions.set(id, { cursor, token: wish.token });
    }
    if (this.mustReconnect(reader)) this.plan();
  }

  private mustReconnect(reader: Reader): boolean {
    if (!this.isRunning) return true;
    for (const [id, { cursor }] of reader.sessions) {
      const reached = this.follower.cursor(id);
      if (reached === undefined || reached > cursor) return true;
    }
    return false;
  }

  /** Several tabs that change their wish at once cause one reconnect. */
  private plan(): void {
    if (this.isPlanned) return;
    this.isPlanned = true;
    queueMicrotask(() => {
      this.isPlanned = false;
      this.isRunning = true;
      this.follower.start(this.cursors());
    });
  }

  private cursors(): Map<string, number> {
    const all = new Map<string, number>();
    for (const reader of this.readers.values()) {
      for (const [id, { cursor }] of reader.sessions) {
        all.set(id, Math.min(cursor, all.get(id) ?? Infinity));
      }
    }
    return all;
  }

  private deliver(frames: Frame[]): void {
    const list: ListEvent[] = [];
    const bySession = new Map<string, SessionEvent[]>();
    for (const frame of frames) {
      const data = JSON.parse(frame.data) as Record<string, unknown>;
      if (typeof data.position === "number" && typeof data.event === "object") {
        const event = data as unknown as SessionEvent;
        const known = bySession.get(event.session_id);
        if (known) known.push(event);
        else bySession.set(event.session_id, [event]);
      } else {
        list.push({ ...data, kind: frame.event } as ListEvent);
      }
    }
    for (const [id, events] of bySession) this.hand(id, events);
    if (list.length) this.broadcast({ type: "list", events: list });
  }

  private hand(session: string, events: SessionEvent[]): void {
    for (const reader of this.readers.values()) {
      const place = reader.sessions.get(session);
      if (!place) continue;
      // A snapshot says that the past has changed: it may stand before what was handed out.
      const fresh = events.filter((event) => event.position > place.cursor || event.event.kind === "snapshot");
      if (!fresh.length) continue;
      place.cursor = fresh[fresh.length - 1]!.position;
      reader.port.send({ type: "events", session, token: place.token, events: fresh });
    }
    this.follower.advance(session, events[events.length - 1]!.position);
  }

  private broadcast(message: FromHub): void {
    for (const { port } of this.readers.values()) port.send(message);
  }
}
