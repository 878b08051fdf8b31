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
const marginPx = 900;

export function spanOf(ids: readonly string[], heights: ReadonlyMap<string, number>, top: number, view: number): Span {
  const from = top - marginPx;
  const to = top + view + marginPx;
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
