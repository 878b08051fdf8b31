import type { Session } from "../api/types";

/** Which sessions the list shows: those with a tag, or of a folder. */
export type Narrowed = { tag: string } | { project: string };

/** The list's filter, and the sessions that are selected in it. */
export class Picking {
  narrowed = $state.raw<Narrowed | null>(null);
  isOn = $state(false);
  ids = $state.raw<ReadonlySet<string>>(new Set());
  private last = "";

  isShown(row: Session): boolean {
    const wanted = this.narrowed;
    if (!wanted) return true;
    return "tag" in wanted ? (row.tags ?? []).includes(wanted.tag) : row.project === wanted.project;
  }

  start(): void {
    this.isOn = true;
    this.ids = new Set();
  }

  end(): void {
    this.isOn = false;
    this.ids = new Set();
  }

  /** `order`: the rows as they stand in the list, for a selection from the last one to this one. */
  toggle(id: string, order: readonly string[], isRange: boolean): void {
    const next = new Set(this.ids);
    const from = order.indexOf(this.last);
    const to = order.indexOf(id);
    if (isRange && from >= 0 && to >= 0) for (const one of order.slice(Math.min(from, to), Math.max(from, to) + 1)) next.add(one);
    else if (!next.delete(id)) next.add(id);
    this.last = id;
    this.ids = next;
  }
}
