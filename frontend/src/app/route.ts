/** Where the page is. In the hash, so that it works under any base path and without the server's help. */

export type Route =
  | { at: "new" }
  | { at: "session"; id: string; message?: string }
  | { at: "jobs"; id?: string }
  | { at: "needs" }
  | { at: "schedules"; id: string | null }
  | { at: "settings"; section: string };

export function readRoute(hash: string): Route {
  const parts = hash.replace(/^#\/?/, "").split("/");
  if (parts[0] === "s" && parts[1]) {
    return parts[2] ? { at: "session", id: parts[1], message: parts[2] } : { at: "session", id: parts[1] };
  }
  if (parts[0] === "jobs") return parts[1] ? { at: "jobs", id: parts[1] } : { at: "jobs" };
  if (parts[0] === "needs") return { at: "needs" };
  if (parts[0] === "schedules") return { at: "schedules", id: parts[1] || null };
  if (parts[0] === "settings") return { at: "settings", section: parts[1] || "models" };
  return { at: "new" };
}

/** The code in the address that `everturn open` gives, taken out of it. */
export function takeCode(): string | null {
  const found = /^#access=([\w-]+)$/.exec(location.hash);
  if (found) history.replaceState(null, "", "#/");
  return found?.[1] ?? null;
}

export function writeRoute(route: Route): string {
  if (route.at === "session") return route.message ? `#/s/${route.id}/${route.message}` : `#/s/${route.id}`;
  if (route.at === "jobs") return route.id ? `#/jobs/${route.id}` : "#/jobs";
  if (route.at === "settings") return `#/settings/${route.section}`;
  if (route.at === "needs") return "#/needs";
  if (route.at === "schedules") return route.id ? `#/schedules/${route.id}` : "#/schedules";
  return "#/";
}
