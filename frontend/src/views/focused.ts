/** Takes the focus when it is drawn. The `autofocus` attribute does so only while nothing else has it. */
export function focused(node: HTMLElement, isWanted = true): void {
  if (isWanted) node.focus();
}
