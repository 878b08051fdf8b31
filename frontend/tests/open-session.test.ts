import { beforeEach, describe, expect, it, vi } from "vitest";
import { Api } from "../src/api/client";
import type { SessionEvent } from "../src/api/types";
import { OpenSession } from "../src/app/open-session.svelte";
import type { Link } from "../src/wire/link";

class FakeApi extends Api {
  override async get<T>(path: string): Promise<T> {
    if (path.endsWith("/queue")) return { items: [] } as T;
    const turn = { id: "trn_1", session_id: "ses_a", owner: "o", state: "running", epoch: 1, created_at: 1 };
    return { messages: [], turns: [turn], version: 1, position: 1, replay_from: 1 } as T;
  }
}

describe("an answer that pours in", () => {
  let frames: (() => void)[];
  const typed = { isNew: false, at: -Infinity };
  const frame = (): void => frames.splice(0).forEach((run) => run());
  let opened: OpenSession;
  const said = (position: number): SessionEvent => ({
    session_id: "ses_a",
    position,
    turn_id: "trn_1",
    at: position,
    event: { kind: "text.delta", step: 1, text: "word " },
  });
  const shown = (): number => opened.conversation!.position;

  beforeEach(async () => {
    frames = [];
    typed.isNew = false;
    vi.stubGlobal("requestAnimationFrame", (run: () => void) => frames.push(run));
    opened = new OpenSession("ses_a", new FakeApi("http://here/"), { want: () => {} } as unknown as Link, () => {}, typed);
    await opened.load();
  });

  it("is shown once per frame, however many pieces came", () => {
    opened.hear([said(2)]);
    opened.hear([said(3)]);
    expect(frames).toHaveLength(1);
    frame();
    expect(shown()).toBe(3);
  });

  it("leaves the frame in which a key is shown to the key, and waits for no second one", () => {
    opened.hear([said(2)]);
    typed.isNew = true;
    frame();
    expect(shown()).toBe(1);
    typed.isNew = true;
    frame();
    expect(shown()).toBe(2);
  });
});
