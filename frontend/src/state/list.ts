/** The session list: rows by id, newest activity first, told apart by what a person looks for. */

import type { ListEvent, Session } from "../api/types";

export interface SessionList {
  rows: ReadonlyMap<string, Session>;
  /** Deleted here, and perhaps still to be undone: not shown. */
  hidden: ReadonlySet<string>;
  /** Known to be deleted: an answer that was read before that does not bring them back. */
  deleted: ReadonlySet<string>;
}

export const emptyList: SessionList = { rows: new Map(), hidden: new Set(), deleted: new Set() };

/** An older row never replaces a newer one, in whatever order answers and events arrive. */
export function isNewer(row: Session, known: Session | undefined): boolean {
  if (!known) return true;
  if (row.version !== known.version) return row.version > known.version;
  if (row.position !== known.position) return row.position > known.position;
  return row.updated_at >= known.updated_at;
}

/** Rows from an answer. It may be older than what the stream has told: it only ever adds to that. */
export function put(list: SessionList, rows: Iterable<Session>): SessionList {
  const next = new Map(list.rows);
  for (const row of rows) if (!list.deleted.has(row.id) && isNewer(row, next.get(row.id))) next.set(row.id, row);
  return { ...list, rows: next };
}

function remove(list: SessionList, id: string): SessionList {
  const rows = new Map(list.rows);
  rows.delete(id);
  return { ...list, rows, deleted: new Set([...list.deleted, id]) };
}

/** Rows of sessions that exist now, also if they were deleted before. */
export function revive(list: SessionList, rows: Session[]): SessionList {
  const isBack = rows.some((row) => list.deleted.has(row.id));
  const deleted = isBack ? new Set([...list.deleted].filter((id) => !rows.some((row) => row.id === id))) : list.deleted;
  return put({ ...list, deleted }, rows);
}

export function hide(list: SessionList, id: string, isHidden: boolean): SessionList {
  const hidden = new Set(list.hidden);
  if (isHidden) hidden.add(id);
  else hidden.delete(id);
  return { ...list, hidden };
}

export function hear(list: SessionList, event: ListEvent): SessionList {
  if (event.kind === "sessions.snapshot") return revive(list, event.sessions ?? []);
  if (event.kind === "session.deleted") return event.session_id ? remove(list, event.session_id) : list;
  return event.session ? revive(list, [event.session]) : list;
}

export interface Group {
  key: string;
  label: string;
  rows: Session[];
}

export interface GroupWords {
  pinned: string;
  today: string;
  yesterday: string;
  lastDays: string;
  month: (at: number) => string;
}

/** Until a session has a title it is called by its first words, which stay. An attachment alone has none: then by its last. */
export function titleOf(row: Session): string {
  return row.title || row.first_words || row.preview || "";
}

export function needsYou(row: Session): boolean {
  return (row.asks ?? 0) > 0;
}

/** Sessions to notify an absent user of: they began to wait for the user, or ended their work. */
export function calling(before: SessionList, after: SessionList): Session[] {
  return [...after.rows.values()].filter((row) => {
    const old = before.rows.get(row.id);
    if (!old || old === row) return false;
    if (needsYou(row)) return !needsYou(old);
    return !!old.active_turn && !row.active_turn && !row.queued;
  });
}

/** Group rows for the sidebar: pinned ones, then by day. */
export function groups(rows: Session[], now: number, words: GroupWords): Group[] {
  const day = new Date(now);
  day.setHours(0, 0, 0, 0);
  const today = day.getTime();
  const yesterday = new Date(today - 12 * 3_600_000).setHours(0, 0, 0, 0);
  const week = new Date(today - 6 * 86_400_000 - 12 * 3_600_000).setHours(0, 0, 0, 0);
  const out = new Map<string, Group>();
  const add = (key: string, label: string, row: Session) => {
    const group = out.get(key);
    if (group) group.rows.push(row);
    else out.set(key, { key, label, rows: [row] });
  };
  const sorted = [...rows].sort((left, right) => right.updated_at - left.updated_at || (left.id < right.id ? 1 : -1));
  for (const row of sorted) if (row.pinned) add("pinned", words.pinned, row);
  for (const row of sorted) {
    if (row.pinned) continue;
    if (row.updated_at >= today) add("today", words.today, row);
    else if (row.updated_at >= yesterday) add("yesterday", words.yesterday, row);
    else if (row.updated_at >= week) add("week", words.lastDays, row);
    else {
      const month = words.month(row.updated_at);
      add(`month:${month}`, month, row);
    }
  }
  return [...out.values()];
}
