/** Calls once, when the element comes near what can be seen. */
export function seen(node: HTMLElement, onseen: () => void) {
  const watcher = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watcher.disconnect();
      onseen();
    },
    { rootMargin: "300px" },
  );
  watcher.observe(node);
  return { destroy: () => watcher.disconnect() };
}
