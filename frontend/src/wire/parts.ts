import type { HubParts } from "./hub";

export const tickMs = 30_000;

/** What a hub needs from the browser, in a worker or in a page. `root` is the server's address. */
export function hubParts(root: string): HubParts {
  return {
    fetch: (input, init) => fetch(input, init),
    address: (sessions) => {
      const address = new URL("api/events", root);
      if (sessions.length) address.searchParams.set("sessions", sessions.join(","));
      return address.href;
    },
    random: Math.random,
    now: Date.now,
  };
}
