// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { footnotesOf, withFootnotes } from "../src/text/footnotes";
import { lexer } from "../src/text/grammar";
import { render } from "../src/text/render";

const numbered = (text: string) => {
  const tokens = lexer(text);
  return withFootnotes(tokens.map(render).join(""), footnotesOf(tokens));
};
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

  it("with names are numbered in the order of the text, around the numbers that are taken", () => {
    const drawn = numbered("- one[^sizes]\n- two[^2]\n\n| a |\n|---|\n| three[^more] |\n\n[^2]: B.\n[^more]: C.\n[^sizes]: A.\n");
    expect(drawn).toContain('one<sup class="fn"><button type="button" data-note="sizes">1</button></sup>');
    expect(drawn).toContain('two<sup class="fn"><button type="button" data-note="2">2</button></sup>');
    expect(drawn).toContain('three<sup class="fn"><button type="button" data-note="more">3</button></sup>');
    expect(drawn).toContain('<p class="fn"><sup><button type="button" data-noted="sizes">1</button></sup> A.</p>');
  });

  it("lead nowhere while their note is missing", () => {
    expect(numbered("It rains[^why] often.")).toContain('<sup class="fn">1</sup>');
  });

  it("cannot bring markup in by their name", () => {
    expect(numbered('x[^"><img/onerror=1>]\n\n[^"><img/onerror=1>]: y')).not.toContain("<img");
  });
});
