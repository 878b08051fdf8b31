/** Calls `onscroll` when the reader scrolls: with wheel, finger, key or scrollbar.
 *
 * A scroll event does not say who scrolled: the browser also moves the view when what is in it shrinks.
 */
export function byHand(node: HTMLElement, onscroll: (direction: "up" | "down") => void) {
  let fingerY = 0;
  const listeners: { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void } = {
    wheel: (event) => {
      // With Ctrl it zooms.
      if (event.deltaY && !event.ctrlKey) onscroll(event.deltaY < 0 ? "up" : "down");
    },
    touchstart: (event) => (fingerY = event.touches[0]?.clientY ?? 0),
    touchmove: (event) => {
      const y = event.touches[0]?.clientY ?? fingerY;
      // The finger takes the page with it.
      if (y !== fingerY) onscroll(y > fingerY ? "up" : "down");
      fingerY = y;
    },
    keydown: (event) => {
      const direction = directionOf(event);
      if (direction && !isField(event.target)) onscroll(direction);
    },
    pointerdown: (event) => {
      if (event.target === node && event.offsetX >= node.clientWidth) onscroll("up");
    },
  };
  for (const [name, listener] of Object.entries(listeners)) node.addEventListener(name, listener as EventListener, { passive: true });
  return {
    destroy() {
      for (const [name, listener] of Object.entries(listeners)) node.removeEventListener(name, listener as EventListener);
    },
  };
}

function directionOf(event: KeyboardEvent): "up" | "down" | null {
  if (event.key === " ") return event.shiftKey ? "up" : "down";
  if (event.key === "ArrowUp" || event.key === "PageUp" || event.key === "Home") return "up";
  return event.key === "ArrowDown" || event.key === "PageDown" || event.key === "End" ? "down" : null;
}

export function isField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
