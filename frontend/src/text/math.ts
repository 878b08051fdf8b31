/** Math, as MathML: browsers draw it themselves, so neither fonts nor styles have to be fetched. */

let loading: Promise<typeof import("katex").default> | null = null;

export async function drawMath(root: ParentNode): Promise<void> {
  const places = [...root.querySelectorAll<HTMLElement>(".math:not([data-drawn])")];
  if (!places.length) return;
  loading ??= import("katex").then((module) => module.default);
  const katex = await loading;
  for (const place of places) {
    place.dataset.drawn = "1";
    const tex = place.dataset.tex ?? "";
    // What cannot be read as math stays on the screen as it was written.
    place.innerHTML = katex.renderToString(tex, {
      output: "mathml",
      displayMode: place.dataset.block === "1",
      throwOnError: false,
      trust: false,
      strict: "ignore",
      maxExpand: 500,
    });
  }
}
