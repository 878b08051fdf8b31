/** How much of an answer is drawn in one frame. */

import type { SessionEvent } from "../api/types";

const charsMin = 200;
const charsMax = 20_000;
/** A frame that takes longer is felt when one types. */
const frameMs = 30;

/** While somebody types, a slow machine draws an answer in shares that are small enough for a key to pass between two of them.
 * What is left over comes with the next frames; the size of a share follows from how long the last ones took. */
export class Pace {
  private chars = 1_000;
  private isShared = false;

  /** How many of the events are for this frame. While nobody types, only a very long answer has more than one share. */
  share(events: readonly SessionEvent[], isTyping: boolean): number {
    this.isShared = isTyping;
    const most = isTyping ? this.chars : charsMax;
    let chars = 0;
    const end = events.findIndex((event) => (chars += lengthOf(event)) > most);
    return end < 0 ? events.length : Math.max(1, end);
  }

  /** A frame took so long, with its layout and paint. */
  took(ms: number): void {
    if (!this.isShared) return;
    if (ms > frameMs) this.chars = Math.max(charsMin, this.chars / 2);
    else if (ms < frameMs / 2) this.chars = Math.min(charsMax, this.chars * 1.25);
  }
}

/** What is drawn for an event: its text, or a row. */
function lengthOf({ event }: SessionEvent): number {
  return "text" in event && typeof event.text === "string" ? event.text.length : 50;
}
