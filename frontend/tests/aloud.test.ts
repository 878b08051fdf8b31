import { describe, expect, it } from "vitest";
import { spoken } from "../src/app/aloud.svelte";

describe("what is read aloud", () => {
  it("is the words, without marks, addresses and code", () => {
    const text = "# Plan\n\n- **Buy** [seeds](https://shop.example/a?b=c)\n\n```py\nprint(1)\n```\n\nSee https://a.example/long/path now.";
    expect(spoken(text)).toEqual(["Plan", "Buy seeds", "Code is left out.", "See a.example now."]);
  });

  it("comes in pieces of whole sentences", () => {
    const sentence = "This is a sentence of some length, which goes on a little.";
    const pieces = spoken(Array(10).fill(sentence).join(" "));
    expect(pieces.length).toBeGreaterThan(1);
    expect(pieces.every((piece) => piece.length <= 220 && piece.endsWith("."))).toBe(true);
    expect(pieces.join(" ")).toBe(Array(10).fill(sentence).join(" "));
  });

  it("is nothing for a text of marks alone", () => {
    expect(spoken("---\n\n***")).toEqual([]);
  });
});
