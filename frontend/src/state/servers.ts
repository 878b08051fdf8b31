/** What a model server of one's own is called, unless its owner says so: models are `name:model`. */

export interface Known {
  name: string;
  base_url?: string | null;
}

const namesMax = 40;

/** A name as the server takes them: small letters, digits and dashes, a letter first. */
export function plainName(text: string): string {
  return text
    .toLowerCase()
    .replace(/[^a-z0-9_-]+/g, "-")
    .replace(/^[^a-z]+/, "")
    .slice(0, namesMax)
    .replace(/-+$/, "");
}

/** Its host, with the port where another server there has the name already. */
export function nameOf(address: string, known: readonly Known[], reserved: (name: string) => boolean): string {
  let place: URL;
  try {
    place = new URL(address.trim());
  } catch {
    return "";
  }
  const host = place.hostname.replace(/^\[|\]$/g, "");
  const isNumber = /^[\d.]+$/.test(host) || host.includes(":");
  // A number is no name: "127.0.0.1" is this machine, any other one needs a word before it.
  const base = plainName(/^(localhost|127\.|::1)/.test(host) ? "localhost" : isNumber ? `server-${host}` : host.split(".")[0]!);
  const port = place.port || (place.protocol === "https:" ? "443" : "80");
  const isFree = (name: string): boolean => {
    const other = known.find((one) => one.name === name);
    return !reserved(name) && (!other || sameAddress(other.base_url ?? "", address));
  };
  const names = [base, plainName(`${base}-${port}`)];
  for (let count = 2; count < 100; count += 1) names.push(plainName(`${base}-${port}-${count}`));
  return names.find((name) => name && isFree(name)) ?? "";
}

function sameAddress(one: string, other: string): boolean {
  const plain = (text: string): string => text.trim().toLowerCase().replace(/\/+$/, "").replace(/\/v1$/, "");
  return plain(one) === plain(other);
}
