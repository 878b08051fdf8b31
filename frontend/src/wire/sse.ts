/** Reads server-sent events out of text chunks. Knows neither network nor page. */

export interface Frame {
  id: string;
  event: string;
  data: string;
}

/** A line longer than this is not ours: the connection is dropped and resumed from its cursor. */
export const lineCharactersMax = 32_000_000;

export class SseReader {
  private rest = "";
  private afterReturn = false;
  private data: string[] = [];
  private kind = "";
  private id = "";

  /** Take the next chunk; give back the frames that it completed. */
  read(chunk: string): Frame[] {
    const frames: Frame[] = [];
    const ends = /[\r\n]/g;
    // What was left over has no line end: a long line is not searched again with each of its chunks.
    ends.lastIndex = this.rest.length;
    // A line end may be split over two chunks: the LF of a CRLF that already ended its line is dropped.
    let text = this.rest + (this.afterReturn && chunk.startsWith("\n") ? chunk.slice(1) : chunk);
    if (chunk !== "") this.afterReturn = false;
    if (text.length > lineCharactersMax) throw new Error("A line of the stream is too long.");
    for (;;) {
      const end = ends.exec(text)?.index ?? -1;
      if (end < 0) break;
      const line = text.slice(0, end);
      const isReturn = text[end] === "\r";
      const pair = isReturn && text[end + 1] === "\n";
      if (isReturn && end + 1 === text.length) this.afterReturn = true;
      text = text.slice(end + (pair ? 2 : 1));
      ends.lastIndex = 0;
      const frame = this.line(line);
      if (frame) frames.push(frame);
    }
    this.rest = text;
    return frames;
  }

  private line(line: string): Frame | null {
    if (line === "") return this.dispatch();
    if (line.startsWith(":")) return null;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") this.data.push(value);
    else if (field === "event") this.kind = value;
    else if (field === "id" && !value.includes("\0")) this.id = value;
    return null;
  }

  private dispatch(): Frame | null {
    const frame = this.data.length
      ? { id: this.id, event: this.kind || "message", data: this.data.join("\n") }
      : null;
    this.data = [];
    this.kind = "";
    return frame;
  }
}
