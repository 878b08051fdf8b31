import { describe, expect, it } from "vitest";
import { SseReader } from "../src/wire/sse";

const stream = 'id: 1\nevent: text.delta\ndata: {"a":1}\n\n:\n\nid: 2\r\nevent: x\r\ndata: one\r\ndata: two\r\n\r\nretry: 100\n\ndata: é 漢\n\n';

function whole(): unknown[] {
  return new SseReader().read(stream);
}

describe("reading server-sent events", () => {
  it("gives id, kind and data, joins lines, and skips comments and retry", () => {
    expect(whole()).toEqual([
      { id: "1", event: "text.delta", data: '{"a":1}' },
      { id: "2", event: "x", data: "one\ntwo" },
      { id: "2", event: "message", data: "é 漢" },
    ]);
  });

  it("gives the same frames however the stream is cut", () => {
    for (let size = 1; size < stream.length; size += 1) {
      const reader = new SseReader();
      const frames = [];
      for (let at = 0; at < stream.length; at += size) frames.push(...reader.read(stream.slice(at, at + size)));
      expect(frames).toEqual(whole());
    }
  });

  it("keeps an unfinished frame until its empty line comes", () => {
    const reader = new SseReader();
    expect(reader.read("data: half")).toEqual([]);
    expect(reader.read("\n")).toEqual([]);
    expect(reader.read("\n")).toEqual([{ id: "", event: "message", data: "half" }]);
  });
});
