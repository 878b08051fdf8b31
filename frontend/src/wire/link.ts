/** A tab's end of the one connection: through the SharedWorker, or on its own where there is none. */

import type { ListEvent, SessionEvent } from "../api/types";
import type { LinkState } from "./follower";
import { Hub, type FromHub, type ToHub } from "./hub";
import { hubParts, tickMs } from "./parts";
import StreamWorker from "./worker?sharedworker";

export interface LinkListener {
  onEvents(session: string, events: SessionEvent[]): void;
  onList(events: ListEvent[]): void;
  onState(state: LinkState): void;
}

/** Without a worker each tab has its own connection: a hidden one gives it up after this time. */
const hiddenMaxMs = 10_000;
/** A worker asks after its tabs with every tick; one that does not has been ended by the browser. */
const workerSilentMaxMs = 3 * tickMs;

export class Link {
  private readonly sessions = new Map<string, { after: number; token: number }>();
  private tokens = 0;
  private heardAt = Date.now();
  private say: (message: ToHub) => void = () => {};

  constructor(
    root: string,
    private readonly listener: LinkListener,
  ) {
    const isShared = typeof SharedWorker === "function";
    if (isShared) this.shared(root);
    else this.alone(root);
    addEventListener("online", () => this.say({ type: "poke" }));
    addEventListener("pagehide", () => this.say({ type: "bye" }));
    addEventListener("pageshow", (event) => (event as PageTransitionEvent).persisted && this.wantAll());
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState !== "visible") return;
      this.wantAll();
      this.say({ type: "poke" });
    });
    this.wantAll();
  }

  /** Deliver the session's events after this position; whatever was under way before is dropped. */
  want(session: string, after: number): void {
    this.tokens += 1;
    this.sessions.set(session, { after, token: this.tokens });
    this.wantAll();
  }

  drop(session: string): void {
    if (this.sessions.delete(session)) this.wantAll();
  }

  poke(): void {
    this.say({ type: "poke" });
  }

  private wantAll(): void {
    this.say({ type: "want", sessions: Object.fromEntries(this.sessions) });
  }

  private hear(message: FromHub): void {
    this.heardAt = Date.now();
    if (message.type === "ping") this.say({ type: "alive" });
    else if (message.type === "state") this.listener.onState(message.state);
    else if (message.type === "list") this.listener.onList(message.events);
    else this.events(message.session, message.token, message.events);
  }

  private events(session: string, token: number, events: SessionEvent[]): void {
    const wish = this.sessions.get(session);
    // Sent before the hub heard that we start again elsewhere: applying it would leave a gap.
    if (!wish || wish.token !== token) return;
    wish.after = events[events.length - 1]!.position;
    this.listener.onEvents(session, events);
  }

  private shared(root: string): void {
    const start = (): void => {
      this.heardAt = Date.now();
      const worker = new StreamWorker({ name: `everturn ${root}` });
      worker.port.onmessage = (event: MessageEvent<FromHub>) => this.hear(event.data);
      worker.port.start();
      this.say = (message) => worker.port.postMessage(message);
      // Its script is gone, as after an upgrade, or workers are forbidden.
      worker.onerror = () => {
        clearInterval(watch);
        this.alone(root);
        this.wantAll();
      };
    };
    const watch = setInterval(() => {
      if (Date.now() - this.heardAt < workerSilentMaxMs) return;
      this.say({ type: "bye" });
      start();
      this.wantAll();
    }, tickMs);
    start();
  }

  private alone(root: string): void {
    const hub = new Hub(hubParts(root));
    const port = { send: (message: FromHub) => this.hear(message) };
    this.say = (message) => hub.hear(port, message);
    setInterval(() => hub.tick(), tickMs);
    let hidden: ReturnType<typeof setTimeout> | undefined;
    document.addEventListener("visibilitychange", () => {
      clearTimeout(hidden);
      if (document.visibilityState === "hidden") hidden = setTimeout(() => hub.pause(), hiddenMaxMs);
    });
  }
}
