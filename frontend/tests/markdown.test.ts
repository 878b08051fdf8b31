import { describe, expect, it } from "vitest";
import { cut, noCut, type Cut } from "../src/text/blocks";
import DOMPurify from "dompurify";
import { drawMath, withMath } from "../src/text/math";
import { clean, render, renderOpen } from "../src/text/render";
import { lexer, parse } from "../src/text/grammar";
import hostile from "./fixtures/hostile.json";

function html(text: string): string {
  return lexer(text).filter((token) => token.type !== "space").map(render).join("");
}

function dom(text: string): HTMLElement {
  const place = document.createElement("div");
  place.innerHTML = html(text);
  return place;
}

const sample = `# Title\n\nSome *text* with\na second line.\n\n- one\n- two\n\n  more\n\n\`\`\`js\nconst a = 1;\n\n- not a list\n\`\`\`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n\nlast **words** here`;

describe("growing Markdown", () => {
  it("ends with the blocks of the whole text, however it grew", () => {
    const whole = cut(sample, noCut, true).frozen.map((block) => block.raw.trimEnd());
    for (const size of [1, 2, 3, 7, 50]) {
      let state: Cut = noCut;
      for (let end = size; end < sample.length + size; end += size) state = cut(sample.slice(0, end), state);
      state = cut(sample, state, true);
      expect(state.frozen.map((block) => block.raw.trimEnd())).toEqual(whole);
    }
  });

  it("never changes a frozen block", () => {
    let state: Cut = noCut;
    for (let end = 1; end <= sample.length; end += 1) {
      const next = cut(sample.slice(0, end), state);
      expect(next.frozen.slice(0, state.frozen.length)).toEqual(state.frozen);
      state = next;
    }
  });

  it("parses only the open end: cost does not follow the length", () => {
    let state: Cut = noCut;
    const text = Array.from({ length: 4000 }, (_, index) => `Paragraph ${index} with some words.`).join("\n\n");
    state = cut(text, state);
    expect(text.length - state.frozenUpTo).toBeLessThan(60);
    for (let index = 0; index < 200; index += 1) {
      const before = state;
      state = cut(`${state.text} more`, state);
      // The frozen list itself is the same object: nothing of it was looked at again.
      expect(state.frozen).toBe(before.frozen);
    }
  });

  it("closes for now what is still open", () => {
    expect(renderOpen("Some **bold and")).toContain("<strong>");
    expect(renderOpen("A [link](https://exa")).not.toContain("](");
  });
});

describe("what may enter the page", () => {
  it("draws what Markdown can say", () => {
    const place = dom(sample);
    expect(place.querySelector("h1")?.textContent).toBe("Title");
    expect(place.querySelectorAll("table td")).toHaveLength(2);
    expect(place.querySelector("pre code")?.textContent).toContain("- not a list");
  });

  it("opens links elsewhere, without telling where from", () => {
    const link = dom("[a](https://example.org)").querySelector("a")!;
    expect(link.getAttribute("rel")).toContain("noopener");
    expect(link.getAttribute("rel")).toContain("noreferrer");
    expect(link.target).toBe("_blank");
  });

  it("fetches no picture from elsewhere, and shows the server's own", () => {
    expect(dom("![x](https://example.org/a.png)").querySelector("img")).toBeNull();
    expect(dom('<img src="https://example.org/a.png" alt="x">').querySelector("img")).toBeNull();
    expect(dom("![x](/api/files/fil_1)").querySelector("img")?.getAttribute("src")).toBe("./api/files/fil_1");
  });

  it("finds math that interrupts a paragraph, and math after a blank line", () => {
    const found = (text: string) => [...dom(text).querySelectorAll(".math")].map((node) => node.getAttribute("data-tex"));
    expect(found("One\n$$\na\n$$\ntwo")).toEqual(["a"]);
    expect(found("One\n\n$$\na\n\nb\n$$\n\ntwo \\(c\\)")).toEqual(["a\n\nb", "c"]);
  });

  // Linear, this is a fraction of a second; when every paragraph looked through all that follow, it was a minute.
  it("reads a long answer of many paragraphs in time that grows with its length", { timeout: 25_000 }, () => {
    const count = 40_000;
    const text = "Lorem ipsum dolor sit amet, consectetur adipiscing.\n\n".repeat(count);
    expect(cut(text, noCut, true).frozen).toHaveLength(count);
  });

  // Parsed, each of these would take a minute: for every mark the rest of the paragraph is searched.
  it("shows a paragraph of very many unclosed marks as it was written", { timeout: 60_000 }, () => {
    for (const mark of ["**a ", "*a **b "]) {
      const text = mark.repeat(12_000).trim();
      const shown = dom(`${text}\n\nThen *this*.`);
      expect(shown.querySelector("p")?.textContent).toBe(text);
      expect(shown.querySelector("em")?.textContent).toBe("this");
    }
  });

  it("knows math from money", () => {
    expect(dom("It costs $5 and $6.").querySelector(".math")).toBeNull();
    expect(dom("So $x^2$ is").querySelector(".math")?.getAttribute("data-tex")).toBe("x^2");
    expect(dom("$$\na < b\n$$").querySelector(".math")?.getAttribute("data-tex")).toBe("a < b");
  });

  for (const [index, text] of hostile.entries()) {
    it(`disarms hostile text ${index}: ${text.slice(0, 60).replace(/\s+/g, " ")}`, () => {
      for (const made of [html(text), renderOpen(text), clean(text)]) {
        const place = document.createElement("div");
        place.innerHTML = made;
        expect(place.querySelector("script,iframe,object,embed,style,link,meta,base,form,input,button,svg,math,video,audio,template")).toBeNull();
        for (const element of place.querySelectorAll("*")) {
          for (const { name, value } of element.attributes) {
            expect(name.startsWith("on")).toBe(false);
            expect(name).not.toBe("style");
            expect(name).not.toBe("srcset");
            if (name === "href" || name === "src") expect(value).toMatch(/^(https?:|mailto:|[#/.])/i);
            if (name === "src") expect(value).toMatch(/^\.?\/?api\//);
          }
        }
      }
    });
  }
});

describe("what has nothing to clean", () => {
  const said = [
    "Some **bold**, *italic*, ~~gone~~ and `a < b && c`.",
    "- one\n- two\n  1. nested \"quoted\" & more\n",
    "> a quotation\n> over two lines\n\n### And a title\n",
    "A [link](https://example.org/a?b=1&c=2#d) and <https://example.org/~x>.",
    "| a | b |\n|:--|--:|\n| `x` | [y](http://nas-01:8080/) |\n| **z** | <br> |\n",
    "x".repeat(300_000),
    "[a](https://example.org/?b=1&c=2) ".repeat(1_000),
  ];
  it.each(said)("is left as a cleaner would leave it", (text) => {
    const tokens = lexer(text).filter((token) => token.type !== "space");
    const drawn = (html: string) => Object.assign(document.createElement("div"), { innerHTML: html }).innerHTML;
    for (const token of tokens) expect(drawn(render(token))).toBe(DOMPurify.sanitize(parse(token), { ADD_ATTR: ["target"] }));
  });
  it("is told from what only looks like it", () => {
    for (const text of ["<p onclick=alert(1)>a</p>", "<P><img src=x onerror=alert(1)></P>", "<em/onmouseover=alert(1)>", "&lt;<script>alert(1)</script>", "<p><svg><style><b></p>"])
      expect(clean(text)).not.toMatch(/onclick|onerror|onmouseover|<script|<svg/i);
  });
  it("does not take a stranger's link for one of ours", () => {
    const ours = 'target="_blank" rel="noopener noreferrer nofollow"';
    for (const text of [
      `<a href="javascript:alert(1)" ${ours}>a</a>`,
      `<a href="https://a.org" ${ours} onclick="alert(1)">a</a>`,
      `<a href="https://a.org" onclick=alert(1) ${ours}>a</a>`,
      `<a href="https://a.org/&quot; onclick=&quot;alert(1)" ${ours}>a</a>`,
      `<a href="https://a.org/" onclick="alert(1)" target="_blank">a</a>`,
      `<div class="table" tabindex="0" role="region" onclick=alert(1)><table></table></div>`,
      `<td class="to-left" onclick=alert(1)>`,
    ]) {
      const made = Object.assign(document.createElement("div"), { innerHTML: clean(text) });
      for (const element of made.querySelectorAll("*")) {
        expect(element.getAttributeNames().filter((name) => name.startsWith("on"))).toEqual([]);
        expect(element.getAttribute("href") ?? "https:").toMatch(/^https:/);
        if (element.tagName === "A") expect(element.getAttribute("rel")).toBe("noopener noreferrer nofollow");
      }
    }
  });
});

describe("math in a text that grows", () => {
  it("is drawn as soon as it is closed, and stays drawn", async () => {
    const first = withMath(renderOpen("Euler: $e^{i\\pi}+1=0$ and"));
    expect(first, "the drawer is fetched with the first formula").not.toContain("<math");
    await drawMath(document.createElement("div"));
    expect(withMath(renderOpen("Euler: $e^{i\\pi}+1=0$ and mo"))).toContain("<math");
    expect(withMath(renderOpen("Open: $e^{i"))).not.toContain("<math");
    expect(withMath(renderOpen("$$\\int_0^1 a<b\\,dx$$\n"))).toMatch(/<div class="math"[^>]*data-drawn="1">.*display="block"/s);
  });
  it("lets nothing in that the cleaner would take out", () => {
    for (const tex of ["\\href{javascript:alert(1)}{x}", "<img src=x onerror=alert(1)>", "\\htmlData{a=b}{x}", '\\text{"><script>alert(1)</script>}']) {
      const made = Object.assign(document.createElement("div"), { innerHTML: withMath(renderOpen(`a $${tex}$ b`)) });
      expect(made.querySelector("script, img, a[href^=javascript]")).toBeNull();
      for (const element of made.querySelectorAll("*")) expect(element.getAttributeNames().filter((name) => name.startsWith("on"))).toEqual([]);
    }
  });
});
