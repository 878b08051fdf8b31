/** Diagrams, drawn only when one is there: cleaned, and apart from the page's own elements and styles. */

import DOMPurify from "dompurify";

let count = 0;

export async function drawDiagram(place: HTMLElement, source: string): Promise<void> {
  const { default: mermaid } = await import("mermaid");
  const isDark = document.documentElement.dataset.theme === "dark";
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    theme: isDark ? "dark" : "neutral",
    fontFamily: "system-ui, sans-serif",
    htmlLabels: false,
    flowchart: { htmlLabels: false },
  });
  count += 1;
  try {
    const { svg } = await mermaid.render(`diagram-${count}`, source);
    // A cleaner of its own: the one for prose takes away the classes that a diagram's styles need.
    const cleaner = DOMPurify(window);
    const host = document.createElement("div");
    host.setAttribute("role", "img");
    host.setAttribute("aria-label", source);
    host.attachShadow({ mode: "open" }).innerHTML = cleaner.sanitize(svg, {
      USE_PROFILES: { svg: true, svgFilters: true },
      FORBID_TAGS: ["a", "image", "foreignObject"],
    });
    place.replaceChildren(host);
  } catch {
    // Not a diagram after all: its text stays on the screen.
    document.getElementById(`ddiagram-${count}`)?.remove();
  }
}
