/** How much needs the user, on the tab's icon and, where the page is installed, on the app's. */

let shown = 0;

export function showBadge(count: number): void {
  if (count === shown) return;
  shown = count;
  // Another file, not a drawing made here: the policy allows no address of that kind for icons everywhere.
  const link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  if (link) link.href = count ? "./icon-waiting.svg" : "./icon.svg";
  // Not in every browser, and refused where the page is not installed: the title says it as well.
  const set = count ? navigator.setAppBadge?.(count) : navigator.clearAppBadge?.();
  set?.catch(() => undefined);
}
