/** Keeps the focus inside an overlay and gives it back when the overlay goes. */
export function trap(node: HTMLElement) {
  const before = document.activeElement as HTMLElement | null;
  const fields = () => [...node.querySelectorAll<HTMLElement>("button:not(:disabled), input, textarea, select, a[href], [tabindex='0']")].filter((field) => field.offsetParent !== null);
  const onkeydown = (event: KeyboardEvent) => {
    if (event.key !== "Tab") return;
    const all = fields();
    const at = all.indexOf(document.activeElement as HTMLElement);
    const next = event.shiftKey ? (at <= 0 ? all.length - 1 : at - 1) : at === all.length - 1 ? 0 : at + 1;
    event.preventDefault();
    all[next]?.focus();
  };
  node.addEventListener("keydown", onkeydown);
  // Where there is nothing to write, the overlay itself is where one reads: no button looks chosen.
  if (!node.hasAttribute("tabindex")) node.tabIndex = -1;
  (node.querySelector<HTMLElement>("[data-first]") ?? node.querySelector<HTMLElement>("input, textarea") ?? node).focus();
  return {
    destroy() {
      node.removeEventListener("keydown", onkeydown);
      before?.focus?.({ preventScroll: true });
    },
  };
}
