/** The rows of the file tree: what is listed, what changed, and which folders are open. */

import type { FileChange, FileChanges, WorkspaceFile } from "../api/types";

export type Show = "all" | "session" | "turn";

export interface Mark {
  change: FileChange;
  /** Changed in this turn; else earlier in this session. */
  isTurn: boolean;
}

export interface Row {
  path: string;
  name: string;
  kind: "file" | "folder" | "link" | "other";
  depth: number;
  size: number | null;
  isOpen: boolean;
  mark: Mark | null;
}

/** What changed, by path: this turn's changes cover those of the session. */
export function marksOf(session: readonly FileChange[], turn: readonly FileChange[]): Map<string, Mark> {
  const marks = new Map<string, Mark>();
  for (const change of session) marks.set(change.path, { change, isTurn: false });
  for (const change of turn) marks.set(change.path, { change, isTurn: true });
  return marks;
}

/** The rows of what is listed so far. A folder that is open and not listed yet has no rows below it. */
export function rowsOf(listed: ReadonlyMap<string, readonly WorkspaceFile[]>, open: ReadonlySet<string>, marks: ReadonlyMap<string, Mark>): Row[] {
  const rows: Row[] = [];
  const add = (folder: string, depth: number) => {
    for (const file of listed.get(folder) ?? []) {
      const isOpen = file.kind === "folder" && open.has(file.path);
      const kind = file.kind as Row["kind"];
      rows.push({ path: file.path, name: file.name, kind, depth, size: file.size, isOpen, mark: marks.get(file.path) ?? null });
      if (isOpen) add(file.path, depth + 1);
    }
  };
  add("", 0);
  return rows;
}

interface Folder {
  folders: Map<string, Folder>;
  files: FileChange[];
}

/** The rows of what changed, with the folders on the way; these are open unless they were closed. */
export function rowsOfChanges(changes: readonly FileChange[], closed: ReadonlySet<string>, marks: ReadonlyMap<string, Mark>): Row[] {
  const root: Folder = { folders: new Map(), files: [] };
  for (const change of changes) {
    const names = change.path.split("/");
    let folder = root;
    for (const name of names.slice(0, -1)) {
      let inner = folder.folders.get(name);
      if (!inner) folder.folders.set(name, (inner = { folders: new Map(), files: [] }));
      folder = inner;
    }
    folder.files.push(change);
  }
  const rows: Row[] = [];
  const add = (folder: Folder, base: string, depth: number) => {
    for (const [name, inner] of [...folder.folders].sort(([left], [right]) => compare(left, right))) {
      const path = base + name;
      const isOpen = !closed.has(path);
      rows.push({ path, name, kind: "folder", depth, size: null, isOpen, mark: null });
      if (isOpen) add(inner, `${path}/`, depth + 1);
    }
    for (const change of [...folder.files].sort((left, right) => compare(left.path, right.path))) {
      const name = change.path.slice(base.length);
      const mark = marks.get(change.path) ?? { change, isTurn: false };
      rows.push({ path: change.path, name, kind: "file", depth, size: change.size ?? null, isOpen: false, mark });
    }
  };
  add(root, "", 0);
  return rows;
}

/** As the server sorts a folder: without regard to capitals. */
function compare(left: string, right: string): number {
  const [a, b] = [left.toLowerCase(), right.toLowerCase()];
  return a < b ? -1 : a > b ? 1 : left < right ? -1 : left > right ? 1 : 0;
}

/** Where a key leads in the tree: the row that gets the focus, or a folder to open or close. */
export type Step = { to: number } | { open: string } | { close: string } | null;

export function step(rows: readonly Row[], at: number, key: string): Step {
  const row = rows[at];
  if (!row) return null;
  if (key === "ArrowDown") return { to: Math.min(at + 1, rows.length - 1) };
  if (key === "ArrowUp") return { to: Math.max(at - 1, 0) };
  if (key === "Home") return { to: 0 };
  if (key === "End") return { to: rows.length - 1 };
  if (key === "ArrowRight" && row.kind === "folder") return row.isOpen ? { to: isChild(rows, at) ? at + 1 : at } : { open: row.path };
  if (key === "ArrowLeft" && row.isOpen) return { close: row.path };
  if (key === "ArrowLeft") return { to: parentOf(rows, at) };
  return null;
}

function isChild(rows: readonly Row[], at: number): boolean {
  return (rows[at + 1]?.depth ?? 0) > rows[at]!.depth;
}

function parentOf(rows: readonly Row[], at: number): number {
  for (let index = at - 1; index >= 0; index -= 1) if (rows[index]!.depth < rows[at]!.depth) return index;
  return at;
}

/** Changes after others, as one: a file that was made and deleted again is none. */
export function netChanges(before: FileChanges | null, next: readonly FileChange[], total: number): FileChanges {
  const all = new Map((before?.changes ?? []).map((change) => [change.path, change]));
  for (const change of next) {
    const first = all.get(change.path)?.what;
    if (first === "added" && change.what === "deleted") all.delete(change.path);
    else if (first === "added") all.set(change.path, { ...change, what: "added" });
    else if (first && change.what !== "deleted") all.set(change.path, { ...change, what: "changed" });
    else all.set(change.path, change);
  }
  // What is not listed is counted as it is told: whether it was listed before is not known.
  const unlisted = (before ? before.total - before.changes.length : 0) + Math.max(0, total - next.length);
  return { changes: [...all.values()], total: all.size + unlisted };
}
