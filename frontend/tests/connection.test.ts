import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Api } from "../src/api/client";
import { Connection } from "../src/app/connection.svelte";
import type { LinkState } from "../src/wire/follower";
import type { LinkListener } from "../src/wire/link";

const { FakeLink } = vi.hoisted(() => ({ FakeLink: class FakeLink {
  static last: FakeLink;
  constructor(_root: string, private readonly listener: LinkListener) {
    FakeLink.last = this;
  }
  become(state: LinkState): void {
    this.listener.onState(state);
  }
} }));
vi.mock("../src/wire/link", () => ({ Link: FakeLink }));

describe("the connection to the server", () => {
  let connection: Connection;

  beforeEach(() => {
    vi.useFakeTimers();
    const listener = { onEvents: () => {}, onList: () => {}, onReconnected: () => new Promise<void>(() => {}), onSignedIn: async () => {} };
    connection = new Connection("http://here/", {} as Api, listener);
    FakeLink.last.become("open");
  });
  afterEach(() => vi.useRealTimers());

  it("is said to be lost a second after the loss, however often it is tried again meanwhile", async () => {
    FakeLink.last.become("lost");
    for (let attempt = 0; attempt < 4; attempt += 1) {
      await vi.advanceTimersByTimeAsync(250);
      FakeLink.last.become("connecting");
      FakeLink.last.become("lost");
    }
    expect(connection.isReconnecting).toBe(true);
  });

  it("says nothing of a stream that is back within a second", async () => {
    FakeLink.last.become("lost");
    await vi.advanceTimersByTimeAsync(900);
    FakeLink.last.become("open");
    await vi.advanceTimersByTimeAsync(5_000);
    expect(connection.isReconnecting).toBe(false);
  });

  it("waits a second anew at the next loss", async () => {
    FakeLink.last.become("lost");
    await vi.advanceTimersByTimeAsync(1_000);
    FakeLink.last.become("open");
    FakeLink.last.become("lost");
    expect(connection.isReconnecting).toBe(false);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(connection.isReconnecting).toBe(true);
  });
});
