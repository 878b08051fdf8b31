import { Problem } from "../api/client";
import type { FileChange } from "../api/types";
import type { TurnView } from "../state/items";
import type { OpenSession } from "./open-session.svelte";

export type MoveAction = "undo" | "redo" | "select" | "retry" | "edit";
export type FileChoice = "keep" | "restore" | "both";

/** What happens to the files: `files` to all of them, `choices` to those that the user changed. */
export interface MoveFiles {
  files?: FileChoice;
  choices?: Record<string, FileChoice>;
}

/** What a move, or a restore, would do to the files. */
export interface FilesPlan {
  digest?: string;
  changes?: FileChange[];
  total?: number;
  /** What the user changed and the move would overwrite, with what they did. */
  conflicts?: FileChange[];
  /** The folder is the user's: a move leaves it alone. */
  is_project?: boolean;
}

/** A move through a session's history that waits for the user's word about the files. */
export interface PendingMove {
  action: MoveAction;
  opened: OpenSession;
  /** The turn that is taken back, or that the move leads to. */
  turnId: string | null;
  /** The files that the move leads to; null: it is not known here which turn they are of. */
  at: string | null;
  plan: FilesPlan;
  /** The files have changed since the plan was shown. */
  isAgain: boolean;
}

interface Move extends Omit<PendingMove, "plan" | "isAgain"> {
  run: (files: MoveFiles) => Promise<void>;
}

/** Moves through a session's history. Where files of the user's would change, the user is asked first. */
export class Moves {
  /** What the user is asked about now. */
  pending = $state.raw<PendingMove | null>(null);
  private answer: ((files: MoveFiles | null) => void) | null = null;
  private isBusy = false;

  /** The moves return false if the user decided against it. */
  undo(opened: OpenSession): Promise<boolean> {
    const turn = opened.last;
    if (!turn) return Promise.resolve(false);
    return this.move({ action: "undo", opened, turnId: turn.id, at: `before:${turn.id}`, run: (files) => opened.undo(files) });
  }

  /** `last`: the turn that redoing everything would lead to, as the server says. */
  redo(opened: OpenSession, last: string | null | undefined): Promise<boolean> {
    // Redo goes one turn forward; which one is known only if all of them were undone here.
    const to = opened.undone[0] === last ? (opened.undone[opened.undone.length - 1] ?? null) : null;
    return this.move({ action: "redo", opened, turnId: to, at: to, run: (files) => opened.redo(files) });
  }

  select(opened: OpenSession, turn: TurnView, offset: number): Promise<boolean> {
    const target = turn.siblingIds[turn.sibling - 1 + offset];
    if (!target) return Promise.resolve(false);
    return this.move({ action: "select", opened, turnId: target, at: target, run: (files) => opened.select(target, files) });
  }

  retry(opened: OpenSession, turn: TurnView, model?: string): Promise<boolean> {
    return this.move({ action: "retry", opened, turnId: turn.id, at: `before:${turn.id}`, run: (files) => opened.retry(turn, model, files) });
  }

  edit(opened: OpenSession, turn: TurnView, text: string): Promise<boolean> {
    return this.move({ action: "edit", opened, turnId: turn.id, at: `before:${turn.id}`, run: (files) => opened.edit(turn, text, files) });
  }

  /** The user's word: null, not to do it. */
  decide(files: MoveFiles | null): void {
    this.answer?.(files);
  }

  private async move(move: Move): Promise<boolean> {
    // A key that is pressed twice must not move twice.
    if (this.isBusy) return false;
    this.isBusy = true;
    try {
      return await this.carryOut(move);
    } finally {
      this.isBusy = false;
    }
  }

  private async carryOut(move: Move): Promise<boolean> {
    for (let isAgain = false; ; isAgain = true) {
      const plan = await move.opened.filesPlan(move.action, move.turnId);
      const files = needsWord(plan, move) ? await this.ask({ ...move, plan, isAgain }) : {};
      if (!files) return false;
      try {
        await move.run(files);
        remember(move);
        return true;
      } catch (error) {
        // The user changed a file while being asked, or just before: ask about what is there now.
        if (!(error instanceof Problem && error.code === "files_conflict") || (isAgain && !needsWord(plan, move))) throw error;
      }
    }
  }

  private async ask(pending: PendingMove): Promise<MoveFiles | null> {
    this.pending = pending;
    try {
      return await new Promise((resolve) => (this.answer = resolve));
    } finally {
      this.pending = null;
      this.answer = null;
    }
  }
}

/** What the user is asked about no longer holds: the turn was undone meanwhile, or another one follows it. */
export function isOver({ action, opened, turnId }: Pick<PendingMove, "action" | "opened" | "turnId">): boolean {
  if (action === "undo") return opened.last?.id !== turnId;
  if (action === "redo" || action === "select") return false;
  return !opened.conversation?.turns.some((turn) => turn.id === turnId);
}

function remember({ action, opened, turnId }: Move): void {
  if (action === "undo" && turnId) opened.undone.push(turnId);
  else if (action === "redo") opened.undone.pop();
  else opened.undone = [];
}

/** Nothing is asked where no file changes. In a project none does: that is worth a word if the answer changed some. */
function needsWord(plan: FilesPlan, move: Move): boolean {
  if (!plan.is_project) return !!(plan.total || plan.conflicts?.length);
  if (move.action === "redo") return false;
  return !!move.opened.conversation?.turns.find((turn) => turn.id === move.turnId)?.files?.total;
}
