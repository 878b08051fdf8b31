/** Which turns are near enough to be drawn. Numbers in, numbers out: the page measures, this decides. */

export interface Span {
  start: number;
  end: number;
  /** Room that the turns before and after would take. */
  above: number;
  below: number;
}

/** A turn that was never drawn is taken to be this tall. */
export const guessPx = 320;
/** How far around the view turns are drawn, and how far they must be, at once. */
export const marginPx = 900;
const needPx = 150;

export function spanOf(ids: readonly string[], heights: ReadonlyMap<string, number>, top: number, view: number, margin = marginPx): Span {
  const from = top - margin;
  const to = top + view + margin;
  let at = 0;
  let start = -1;
  let end = ids.length;
  let above = 0;
  let below = 0;
  for (let index = 0; index < ids.length; index += 1) {
    const height = heights.get(ids[index]!) ?? guessPx;
    const isNear = at + height >= from && at <= to;
    // The last turn is always drawn: it may be growing.
    const isLast = index === ids.length - 1;
    if (start < 0) {
      if (isNear || isLast) start = index;
      else above += height;
    } else if (!isNear && end === ids.length) {
      end = index;
    }
    if (end < ids.length && index >= end) below += height;
    at += height;
  }
  if (start < 0) start = 0;
  return { start, end, above, below };
}

export function offsetOf(ids: readonly string[], heights: ReadonlyMap<string, number>, index: number): number {
  let at = 0;
  for (let before = 0; before < index; before += 1) at += heights.get(ids[before]!) ?? guessPx;
  return at;
}

/** The next span on the way to the one that is wanted: what can be seen comes at once, the rest of the
 * surroundings by `count` turns at a time, so that no single frame has to draw them all. */
export function towards(
  now: Span,
  ids: readonly string[],
  heights: ReadonlyMap<string, number>,
  top: number,
  view: number,
  count: number,
): { span: Span; isThere: boolean } {
  const want = spanOf(ids, heights, top, view);
  const need = spanOf(ids, heights, top, view, needPx);
  // After a jump nothing of what is drawn is of use.
  const base = now.end < need.start || now.start > need.end ? need : now;
  const start = Math.min(need.start, Math.max(base.start - count, want.start));
  const end = Math.max(need.end, Math.min(base.end + count, want.end));
  const isThere = start <= want.start && end >= want.end;
  const above = isThere ? want.above : offsetOf(ids, heights, start);
  const below = isThere ? want.below : offsetOf(ids, heights, ids.length) - offsetOf(ids, heights, end);
  return { span: { start, end, above, below }, isThere };
}
