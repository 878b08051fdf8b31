/** Our Markdown: GitHub's, with math. Rendering to HTML text; nothing here touches a document. */

import { Lexer, Marked, type Token, type Tokens, type TokensList } from "marked";
import { words } from "../words";
import { isHost, isPath } from "./file-kinds";

export function escape(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("'", "&#39;");
}

/** An address that may become a link: never script, data or a file of the reader's machine. */
export function safeAddress(address: string): string | null {
  const trimmed = address.trim();
  if (/^(https?:|mailto:)/i.test(trimmed)) return trimmed;
  if (/^[#/.]/.test(trimmed) && !trimmed.startsWith("//")) return trimmed;
  if (isHost(trimmed)) return `https://${trimmed}`;
  return null;
}

function math(tex: string, isBlock: boolean): string {
  const shown = escape(tex);
  return isBlock
    ? `<div class="math" data-tex="${shown}" data-block="1">${shown}</div>`
    : `<span class="math" data-tex="${shown}">${shown}</span>`;
}

const blockMath = {
  name: "blockMath",
  level: "block" as const,
  // Asked at every paragraph, with all the text after it: only what stands before the next blank line matters, and
  // to look farther would make the cost of a long answer grow with the square of its length.
  start(text: string) {
    const found = /\$\$|\\\[|\n[ \t]*\n/.exec(text);
    return found?.[0].startsWith("\n") ? undefined : found?.index;
  },
  tokenizer(text: string) {
    const found = /^\$\$([\s\S]+?)\$\$(?:\n|$)/.exec(text) ?? /^\\\[([\s\S]+?)\\\](?:\n|$)/.exec(text);
    return found ? { type: "blockMath", raw: found[0], text: found[1]!.trim() } : undefined;
  },
  renderer: (token: Tokens.Generic) => math(String(token.text), true),
};

const inlineMath = {
  name: "inlineMath",
  level: "inline" as const,
  start: (text: string) => text.match(/\$|\\\(/)?.index,
  tokenizer(text: string) {
    // Money is not math: an opening dollar touches its content, a closing one is not followed by a digit.
    const found =
      /^\$(?!\s|\$)((?:\\.|[^$\\\n])+?)(?<!\s)\$(?!\d)/.exec(text) ?? /^\\\(([\s\S]+?)\\\)/.exec(text);
    return found ? { type: "inlineMath", raw: found[0], text: found[1]!.trim() } : undefined;
  },
  renderer: (token: Tokens.Generic) => math(String(token.text), false),
};

/** `[^1]` in a text, and `[^1]: what it says` on a line of its own: the number stands small before both. */
const footnoteMark = {
  name: "footnoteMark",
  level: "inline" as const,
  start: (text: string) => text.match(/\[\^/)?.index,
  tokenizer(text: string) {
    const found = /^\[\^([^\]\s]{1,40})\]/.exec(text);
    return found ? { type: "footnoteMark", raw: found[0], text: found[1] } : undefined;
  },
  renderer: (token: Tokens.Generic) => `<sup class="fn">${escape(String(token.text))}</sup>`,
};

const footnote = {
  name: "footnote",
  level: "block" as const,
  start(text: string) {
    const found = /(?:^|\n)\[\^|\n[ \t]*\n/.exec(text);
    return found && /\[\^$/.test(found[0]) ? found.index : undefined;
  },
  tokenizer(this: { lexer: Lexer }, text: string) {
    const found = /^\[\^([^\]\s]{1,40})\]:[ \t]*((?:(?!\n\[\^|\n[ \t]*\n)[\s\S])+)(?:\n|$)/.exec(text);
    if (!found) return undefined;
    const said = found[2]!.replace(/\n[ \t]+/g, "\n").trim();
    return { type: "footnote", raw: found[0], name: found[1], text: said, tokens: this.lexer.inlineTokens(said) };
  },
  renderer(this: { parser: { parseInline: (tokens: Token[]) => string } }, token: Tokens.Generic) {
    return `<p class="fn"><sup>${escape(String(token.name))}</sup> ${this.parser.parseInline(token.tokens ?? [])}</p>`;
  },
};

const marked = new Marked({ gfm: true, breaks: false, async: false });
marked.use({
  extensions: [blockMath, inlineMath, footnote, footnoteMark],
  renderer: {
    link(token) {
      const text = this.parser.parseInline(token.tokens);
      // Where a file of the workspace is, is filled in by who draws the text (text/file-links.ts).
      if (isPath(token.href)) return `<a data-file="${escape(token.href)}">${text}</a>`;
      const address = safeAddress(token.href);
      if (!address) return text;
      const title = token.title ? ` title="${escape(token.title)}"` : "";
      return `<a href="${escape(address)}"${title} target="_blank" rel="noopener noreferrer nofollow">${text}</a>`;
    },
    image(token) {
      const own = /^(\.?\/)?api\/(files|artifacts)\/[\w-]+$/.test(token.href);
      const label = escape(token.text || token.href);
      if (own) return `<img src="${escape(token.href.replace(/^\//, "./"))}" alt="${label}" loading="lazy" />`;
      if (!own && isPath(token.href)) return `<img data-file="${escape(token.href)}" alt="${label}" loading="lazy" />`;
      const address = safeAddress(token.href);
      // Nothing is fetched from elsewhere: the reader decides, and then the browser's own tab fetches it.
      if (!address) return label;
      const host = escape(hostOf(address));
      return `<a class="remote" href="${escape(address)}" target="_blank" rel="noopener noreferrer nofollow">${words.remoteImage(label, host)}</a>`;
    },
    code(token) {
      const lang = /^[\w+#.-]*/.exec(token.lang ?? "")?.[0] ?? "";
      return `<pre data-lang="${escape(lang)}"><code>${escape(token.text)}</code></pre>`;
    },
    table(token) {
      const cell = (tag: string, value: Tokens.TableCell) =>
        `<${tag}${value.align ? ` class="to-${value.align}"` : ""}>${this.parser.parseInline(value.tokens)}</${tag}>`;
      const head = token.header.map((value) => cell("th", value)).join("");
      const rows = token.rows.map((row) => `<tr>${row.map((value) => cell("td", value)).join("")}</tr>`).join("");
      return `<div class="table" tabindex="0" role="region"><table><thead><tr>${head}</tr></thead><tbody>${rows}</tbody></table></div>`;
    },
    checkbox: ({ checked }) => `<span class="box${checked ? " on" : ""}" role="img" aria-label="${checked ? "done" : "open"}"></span> `,
  },
});

function hostOf(address: string): string {
  try {
    return new URL(address, "http://here.invalid").host;
  } catch {
    return address;
  }
}

/** Characters times marks of a paragraph: beyond that its marks are shown as they were written. */
const inlineWorkMax = 20_000_000;

/** For each mark that is never closed, the parser looks through the rest of the paragraph: seconds, if it has many. */
class BoundedLexer extends Lexer {
  override inlineTokens(text: string, tokens: Token[] = []): Token[] {
    const marks = text.length > 1_000 ? (text.match(/[*_~`[<$\\@]|www\./g)?.length ?? 0) : 0;
    if (text.length * marks <= inlineWorkMax) return super.inlineTokens(text, tokens);
    tokens.push({ type: "text", raw: text, text, escaped: false });
    return tokens;
  }
}

export function lexer(text: string): TokensList {
  return new BoundedLexer(marked.defaults).lex(text);
}

/** HTML of one token, not yet sanitised. */
export function parse(token: Token): string {
  return marked.parser([token]);
}
