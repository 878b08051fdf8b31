import { describe, expect, it } from "vitest";
import type { Session } from "../src/api/types";
import { emptyList, hear, put, revive, titleOf, type SessionList } from "../src/state/list";

function row(number: number, version = 1): Session {
  return { id: `ses_${number}`, owner: "o", version, position: 0, created_at: 1, updated_at: 1_000 - number } as Session;
}

const rows = (from: number, to: number, version = 1): Session[] => Array.from({ length: to - from }, (_, index) => row(from + index, version));
const ids = (list: SessionList): string[] => [...list.rows.keys()].sort();

describe("the session list", () => {
  const snapshot = { kind: "sessions.snapshot", sessions: rows(0, 50, 2) };
  const page = rows(0, 100);

  it("is the same whether the snapshot or the page comes first", () => {
    const first = put(hear(emptyList, snapshot), page);
    const second = hear(put(emptyList, page), snapshot);
    expect(ids(first)).toEqual(ids(second));
    expect(first.rows.size).toBe(100);
    expect(first.rows.get("ses_7")!.version).toBe(2);
    expect(second.rows.get("ses_7")!.version).toBe(2);
  });

  it("does not bring back a session that was deleted while the page was read", () => {
    const list = put(hear(emptyList, { kind: "session.deleted", session_id: "ses_3" }), page);
    expect(list.rows.has("ses_3")).toBe(false);
    expect(list.rows.size).toBe(99);
  });

  it("calls a session by its first words until it has a title", () => {
    const named = { ...row(1), preview: "the last answer" };
    expect(titleOf(named)).toBe("the last answer");
    expect(titleOf({ ...named, first_words: "the first question" })).toBe("the first question");
    expect(titleOf({ ...named, first_words: "", title: "A title" })).toBe("A title");
    expect(titleOf(row(1))).toBe("");
  });

  it("shows a deleted session again when it is restored", () => {
    const list = hear(put(emptyList, page), { kind: "session.deleted", session_id: "ses_3" });
    expect(hear(list, { kind: "session.changed", session_id: "ses_3", session: row(3) }).rows.has("ses_3")).toBe(true);
    expect(revive(list, [row(3)]).rows.has("ses_3")).toBe(true);
  });
});
