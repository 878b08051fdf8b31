import type { Api } from "../api/client";
import type { LinkState } from "../wire/follower";
import { Link, type LinkListener } from "../wire/link";

const chipDelayMs = 1_000;

export interface ConnectionListener extends Omit<LinkListener, "onState"> {
  /** The stream is open again; before it, changes may have been missed. */
  onReconnected: () => Promise<void>;
  /** The user has signed in. */
  onSignedIn: () => Promise<void>;
}

/** The stream from the server, the sign-in, and whether this page is the server's present one. */
export class Connection {
  isReconnecting = $state(false);
  isSignedOut = $state(false);
  /** What the sign-in asks for. */
  wants = $state<"password" | "token">("password");
  isOutdated = $state(false);
  readonly link: Link;
  private state: LinkState = "connecting";
  private chipTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    root: string,
    private readonly api: Api,
    private readonly listener: ConnectionListener,
  ) {
    api.onSignedOut = (wants) => {
      this.isSignedOut = true;
      this.wants = wants;
    };
    this.link = new Link(root, { ...listener, onState: (state) => this.changed(state) });
  }

  private changed(state: LinkState): void {
    const was = this.state;
    this.state = state;
    if (state === "open") {
      this.stopWaiting();
      if (was === "open") return;
      // The stream is shared by all tabs: another one has signed in.
      if (this.isSignedOut) {
        this.isSignedOut = false;
        void this.listener.onSignedIn();
      }
      void this.reconnected();
    } else if (state === "signed_out") {
      this.stopWaiting();
      this.isSignedOut = true;
    } else {
      // From the first loss on: a failed attempt follows another in less time than this.
      this.chipTimer ??= setTimeout(() => (this.isReconnecting = true), chipDelayMs);
    }
  }

  private stopWaiting(): void {
    clearTimeout(this.chipTimer);
    this.chipTimer = undefined;
    this.isReconnecting = false;
  }

  private async reconnected(): Promise<void> {
    await this.listener.onReconnected();
    void this.checkBuild();
  }

  /** After an upgrade an old tab offers to reload; it never reloads by itself, a draft may be open. */
  private async checkBuild(): Promise<void> {
    try {
      const response = await fetch(this.api.address("./"), { cache: "no-cache", credentials: "same-origin" });
      const html = await response.text();
      const own = document.querySelector<HTMLScriptElement>('script[type="module"][src*="assets/"]');
      const name = own?.src.split("/").pop();
      if (response.ok && name && html.includes("assets/") && !html.includes(name)) this.isOutdated = true;
    } catch {
      // Not reachable after all; the stream will say so.
    }
  }

  /** Sign in with the password, or with the access token of a server that has none. */
  async signIn(secret: string): Promise<void> {
    if (this.wants === "token") await this.enter(secret);
    else {
      await this.api.post("api/signin", { body: { password: secret } });
      this.entered();
    }
    await this.listener.onSignedIn();
  }

  /** Use an access token. */
  async enter(token: string): Promise<void> {
    await this.api.post("api/access", { body: { token } });
    this.entered();
  }

  private entered(): void {
    this.isSignedOut = false;
    this.link.poke();
  }

  async signOut(): Promise<void> {
    await this.api.post("api/signout");
    location.reload();
  }
}
