import { beforeEach, describe, expect, it } from "vitest";
import { Problem } from "../src/api/client";
import { Moves, isOver, type FilesPlan, type MoveFiles } from "../src/app/moves.svelte";
import type { OpenSession } from "../src/app/open-session.svelte";
import { emptyTurn } from "../src/state/items";

const change = (path: string) => ({ path, what: "changed" as const });

/** A session that notes what it is asked to do. */
class FakeSession {
  id = "ses_1";
  last = { ...emptyTurn("trn_2", 0), files: { changes: [change("a")], total: 1 } };
  conversation = { turns: [emptyTurn("trn_1", 0), this.last] };
  undone: string[] = [];
  plans: FilesPlan[] = [];
  refusals: Problem[] = [];
  done: [string, MoveFiles][] = [];

  filesPlan(): Promise<FilesPlan> {
    return Promise.resolve(this.plans.shift() ?? {});
  }
  undo = (files: MoveFiles) => this.note("undo", files);
  redo = (files: MoveFiles) => this.note("redo", files);
  retry = (_turn: unknown, _model: unknown, files: MoveFiles) => this.note("retry", files);

  private async note(what: string, files: MoveFiles): Promise<void> {
    const refusal = this.refusals.shift();
    if (refusal) throw refusal;
    this.done.push([what, files]);
  }
}

/** Let everything go on that waits for nothing. */
const settle = () => new Promise((resolve) => setTimeout(resolve));

describe("moves through the history", () => {
  let session: FakeSession;
  let opened: OpenSession;
  let moves: Moves;

  beforeEach(() => {
    session = new FakeSession();
    opened = session as unknown as OpenSession;
    moves = new Moves();
  });

  it("asks nothing where no file changes", async () => {
    expect(await moves.undo(opened)).toBe(true);
    expect(session.done).toEqual([["undo", {}]]);
    expect(moves.pending).toBeNull();
  });

  it("asks before files change, and does as the user says", async () => {
    session.plans = [{ changes: [change("a")], total: 1, conflicts: [change("a")] }];
    const moved = moves.undo(opened);
    await settle();
    expect(moves.pending).toMatchObject({ action: "undo", turnId: "trn_2", at: "before:trn_2", isAgain: false });
    expect(session.done).toEqual([]);
    moves.decide({ choices: { a: "both" } });
    expect(await moved).toBe(true);
    expect(session.done).toEqual([["undo", { choices: { a: "both" } }]]);
    expect(moves.pending).toBeNull();
  });

  it("does nothing if the user decides against it", async () => {
    session.plans = [{ changes: [change("a")], total: 1 }];
    const moved = moves.retry(opened, session.last);
    await settle();
    moves.decide(null);
    expect(await moved).toBe(false);
    expect(session.done).toEqual([]);
  });

  it("are over when the turn was undone meanwhile, or another one follows it", () => {
    const undo = { action: "undo" as const, opened, turnId: "trn_2" };
    const retry = { action: "retry" as const, opened, turnId: "trn_1" };
    expect([isOver(undo), isOver(retry)]).toEqual([false, false]);
    session.last = session.conversation.turns[0] as typeof session.last;
    expect(isOver(undo)).toBe(true);
    session.conversation.turns = [];
    expect(isOver(retry)).toBe(true);
  });

  it("asks again if a file has changed while the user was asked, or just before", async () => {
    session.plans = [{}, { changes: [change("b")], total: 1, conflicts: [change("b")] }];
    session.refusals = [new Problem(409, "files_conflict", "1 changed file would be overwritten.")];
    const moved = moves.undo(opened);
    await settle();
    expect(moves.pending).toMatchObject({ isAgain: true });
    moves.decide({ choices: { b: "keep" } });
    expect(await moved).toBe(true);
    expect(session.done).toEqual([["undo", { choices: { b: "keep" } }]]);
  });

  it("passes on any other refusal, and one that no plan explains", async () => {
    session.refusals = [new Problem(409, "nothing_to_do", "There is nothing to undo.")];
    await expect(moves.undo(opened)).rejects.toThrow("nothing to undo");
    session.refusals = [new Problem(409, "files_conflict", "once"), new Problem(409, "files_conflict", "twice")];
    await expect(moves.undo(opened)).rejects.toThrow("twice");
  });

  it("moves once, however often the key is pressed", async () => {
    const both = [moves.undo(opened), moves.undo(opened)];
    expect(await Promise.all(both)).toEqual([true, false]);
    expect(session.done).toHaveLength(1);
  });

  it("says in a project that its files stay, if the answer changed some", async () => {
    session.plans = [{ is_project: true }, { is_project: true }];
    const moved = moves.undo(opened);
    await settle();
    expect(moves.pending).not.toBeNull();
    moves.decide({});
    expect(await moved).toBe(true);
    session.last.files = { changes: [], total: 0 };
    expect(await moves.undo(opened)).toBe(true);
  });

  it("knows which turn a redo leads to only if all were undone here", async () => {
    const pending = async (last: string) => {
      session.plans = [{ changes: [change("a")], total: 1 }];
      const moved = moves.redo(opened, last);
      await settle();
      const at = moves.pending?.at;
      moves.decide(null);
      await moved;
      return at;
    };
    expect(await pending("trn_2")).toBeNull();
    await moves.undo(opened);
    session.last = emptyTurn("trn_1", 0) as FakeSession["last"];
    await moves.undo(opened);
    expect(await pending("trn_2")).toBe("trn_1");
    expect(await pending("trn_9")).toBeNull();
    await moves.redo(opened, "trn_2");
    expect(await pending("trn_2")).toBe("trn_2");
  });
});
