/** Diagrams, drawn only when one is there. The result is shown as a picture: it can run nothing. */

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
    const image = new Image();
    image.alt = source;
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    place.replaceChildren(image);
  } catch {
    // Not a diagram after all: its text stays on the screen.
    document.getElementById(`ddiagram-${count}`)?.remove();
  }
}
