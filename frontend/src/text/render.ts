/** Markdown into HTML that may enter the page: whatever the text was, only harmless elements are left. */

import DOMPurify, { type Config } from "dompurify";
import type { Token } from "marked";
import remend from "remend";
import { isPath } from "./file-kinds";
import { lexer, parse } from "./grammar";

const policy: Config = {
  ALLOWED_TAGS: [
    "a", "b", "blockquote", "br", "code", "dd", "del", "details", "div", "dl", "dt", "em", "h1", "h2", "h3", "h4",
    "h5", "h6", "hr", "i", "img", "ins", "kbd", "li", "mark", "ol", "p", "pre", "s", "small", "span", "strong", "sub",
    "summary", "sup", "table", "tbody", "td", "th", "thead", "tr", "u", "ul",
  ],
  ALLOWED_ATTR: [
    "href", "title", "target", "rel", "src", "alt", "loading", "class", "start", "colspan", "rowspan", "open",
    "tabindex", "role", "aria-label", "data-tex", "data-block", "data-lang", "data-file",
  ],
  // These hold no address; without this the rule for addresses would be applied to them.
  ADD_URI_SAFE_ATTR: [
    "title", "target", "rel", "alt", "loading", "class", "start", "colspan", "rowspan", "open", "tabindex", "role",
    "aria-label", "data-tex", "data-block", "data-lang", "data-file",
  ],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|[#/.])/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOW_UNKNOWN_PROTOCOLS: false,
};

const ownClasses = new Set(["fn", "math", "remote", "table", "box", "on", "to-left", "to-right", "to-center"]);

let made: typeof DOMPurify | null = null;

/** A cleaner of our own: hooks on the shared one would also reach the libraries that use it. */
function cleaner(): typeof DOMPurify {
  if (made) return made;
  made = DOMPurify(window);
  made.addHook("afterSanitizeAttributes", (node) => {
    const element = node as Element;
    const named = element.getAttribute("class");
    // A class from the text must not borrow the look of the page's own controls.
    if (named !== null) {
      const kept = named.split(/\s+/).filter((name) => ownClasses.has(name));
      if (kept.length) element.setAttribute("class", kept.join(" "));
      else element.removeAttribute("class");
    }
    const file = element.getAttribute("data-file");
    // A file of the workspace has no other address beside its path.
    if (file !== null && (element.tagName === "A" || element.tagName === "IMG") && isPath(file)) {
      element.removeAttribute("href");
      element.removeAttribute("src");
    } else {
      element.removeAttribute("data-file");
    }
    if (element.tagName === "A") {
      element.setAttribute("target", "_blank");
      element.setAttribute("rel", "noopener noreferrer nofollow");
    }
    // Only the server's own files are fetched; an image from elsewhere would tell its host who reads.
    if (element.tagName === "IMG" && !element.hasAttribute("data-file") && !/^(\.\/|\/)?api\/(files|artifacts)\/[\w-]+$/.test(element.getAttribute("src") ?? "")) {
      element.replaceWith(element.getAttribute("alt") ?? "");
    }
  });
  return made;
}

/** Text, elements without any attribute that hold nothing but text, and links and tables exactly as our
 * grammar writes them. There is nothing in it that could be taken out, and most blocks of most answers are
 * like this. */
const plain = new RegExp(
  `^[^<&]*(?:(?:${[
    "</?(?:p|strong|em|del|code|ul|ol|li|h[1-6]|blockquote)>",
    "<br>",
    "&(?:amp|lt|gt|quot|#39);",
    '<a href="https?://(?:[\\w.~:/?#@!$()*+,;=%-]|&amp;)+" target="_blank" rel="noopener noreferrer nofollow">',
    "</a>",
    '<div class="table" tabindex="0" role="region"><table><thead><tr>',
    '<t[hd](?: class="to-(?:left|right|center)")?>',
    "</t[hd]>",
    "</?tr>",
    "</thead><tbody>",
    "</tbody></table></div>",
  ].join("|")})[^<&]*)*$`,
);

export function clean(html: string): string {
  if (plain.test(html)) return html;
  return cleaner().sanitize(html, policy) as string;
}

const known = new Map<string, string>();
const knownMax = 400;

/** HTML of a finished block. */
export function render(token: Token): string {
  const cached = known.get(token.raw);
  if (cached !== undefined) return cached;
  const html = clean(parse(token));
  if (known.size >= knownMax) known.delete(known.keys().next().value!);
  known.set(token.raw, html);
  return html;
}

/** HTML of the block that is still growing: what is open (bold, code, links) is closed for now. */
export function renderOpen(raw: string): string {
  return clean(lexer(remend(raw)).map(parse).join(""));
}
