import { describe, expect, it } from "vitest";
import { exact, visible } from "../src/text/exact";
import { calledOf, partsOf } from "../src/state/tools";

describe("text that is approved", () => {
  it.each([
    ["\u202e", "\\u202e"],
    ["\u2066", "\\u2066"],
    ["\u200f", "\\u200f"],
    ["\u200b", "\\u200b"],
    ["\u2028", "\\u2028"],
    ["\u00a0", "\\xa0"],
    ["\u3164", "\\u3164"],
    ["\x1b", "\\x1b"],
    ["\r", "\\x0d"],
    ["\u{e0041}", "\\u{e0041}"],
  ])("shows %j", (char, shown) => {
    expect(exact(`a${char}b`)).toEqual([
      { text: "a", isMarked: false },
      { text: shown, isMarked: true },
      { text: "b", isMarked: false },
    ]);
  });

  it("leaves ordinary text alone", () => {
    const text = "for x in 1 2; do\n\techo \"$x\" 世界 é 😀\ndone\n\n\nend";
    expect(exact(text)).toEqual([{ text, isMarked: false }]);
  });

  it("counts blank lines and gaps instead of drawing them", () => {
    expect(visible("ls" + "\n".repeat(121) + "rm -rf x")).toBe("ls\n[120 blank lines]\nrm -rf x");
    expect(visible(`ls${" ".repeat(5000)}; rm`)).toBe("ls[5,000 spaces]; rm");
    expect(visible("\n \n\t\n \nrm")).toBe("[4 blank lines]\nrm");
  });

  it("keeps each argument apart, so that none can pass for another", () => {
    const call = { label: "", name: "write_file", arguments: JSON.stringify({ content: "x\npath: notes.txt", path: "../.bashrc" }) };
    expect(partsOf(call)).toEqual([
      { name: "content", text: "x\npath: notes.txt" },
      { name: "path", text: "../.bashrc" },
    ]);
    expect(partsOf({ ...call, arguments: '{"command":"ls"}' })).toEqual([{ name: "", text: "ls" }]);
    const found = { ...call, name: "call_tool", arguments: '{"name":"home__lights","arguments":{"room":"hall"}}' };
    expect([calledOf(found).name, partsOf(found)]).toEqual(["home__lights", [{ name: "room", text: "hall" }]]);
    const odd = { ...found, arguments: '{"name":"home__lights","arguments":{},"and":1}' };
    expect([calledOf(odd).name, partsOf(odd).length]).toEqual(["call_tool", 3]);
    expect(partsOf({ ...call, arguments: "not json" })).toEqual([{ name: "", text: "not json" }]);
  });
});
