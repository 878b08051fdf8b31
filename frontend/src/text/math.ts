/** Math, as MathML: browsers draw it themselves, so neither fonts nor styles have to be fetched. */

type Katex = typeof import("katex").default;

let loading: Promise<Katex> | null = null;
let katex: Katex | null = null;
const known = new Map<string, string>();
const knownMax = 500;

const place = /<(span|div) class="math" data-tex="([^"]*)"( data-block="1")?>[^<]*<\/\1>/g;
const signs: Record<string, string> = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'" };

/** The same HTML with its formulas drawn, once the drawer is here; a growing text is drawn anew at each frame,
 * so a formula that is closed is never seen as TeX again. */
export function withMath(html: string): string {
  if (!html.includes('class="math"')) return html;
  if (!katex) {
    void load();
    return html;
  }
  return html.replace(place, (_all, tag: string, escaped: string, block: string | undefined) => {
    const tex = escaped.replace(/&(?:amp|lt|gt|quot|#39);/g, (sign) => signs[sign]!);
    return `<${tag} class="math" data-tex="${escaped}" data-drawn="1">${drawn(katex!, tex, !!block)}</${tag}>`;
  });
}

/** Draw what stands in the document as TeX: the first formulas, which the drawer came too late for. */
export async function drawMath(root: ParentNode): Promise<void> {
  const drawer = await load();
  for (const one of root.querySelectorAll<HTMLElement>(".math:not([data-drawn])")) {
    one.dataset.drawn = "1";
    one.innerHTML = drawn(drawer, one.dataset.tex ?? "", one.dataset.block === "1");
  }
}

function load(): Promise<Katex> {
  loading ??= import("katex").then((module) => {
    katex = module.default;
    // A text that has paused would show its first formula as TeX until it goes on.
    void drawMath(document);
    return katex;
  });
  return loading;
}

function drawn(drawer: Katex, tex: string, displayMode: boolean): string {
  const key = `${displayMode}${tex}`;
  const cached = known.get(key);
  if (cached !== undefined) return cached;
  // What cannot be read as math stays on the screen as it was written.
  const made = drawer.renderToString(tex, {
    output: "mathml",
    displayMode,
    throwOnError: false,
    trust: false,
    strict: "ignore",
    maxExpand: 500,
  });
  if (known.size >= knownMax) known.delete(known.keys().next().value!);
  known.set(key, made);
  return made;
}
