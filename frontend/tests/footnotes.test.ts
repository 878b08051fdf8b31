// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { lexer } from "../src/text/grammar";
import { render } from "../src/text/render";

const html = (text: string) => lexer(text).map(render).join("");

describe("footnotes", () => {
  it("have a small number in the text and before the note", () => {
    const drawn = html("It rains[^1] often.\n\n[^1]: In **autumn**,\n  above all.\n");
    expect(drawn).toContain('<sup class="fn">1</sup> often');
    expect(drawn).toMatch(/<p class="fn"><sup>1<\/sup> In <strong>autumn<\/strong>,\s+above all\.<\/p>/);
  });

  it("follow each other line by line", () => {
    const drawn = html("[^a]: One.\n[^b]: Two.\n");
    expect(drawn.match(/<p class="fn">/g)).toHaveLength(2);
  });

  it("cannot bring markup in", () => {
    expect(html("x[^<img/onerror=1>]")).not.toContain("<img");
  });

  it("leave code and brackets alone", () => {
    expect(html("`a[^1]` and [link](https://a.example)")).not.toContain("fn");
  });
});
