/** How the models are offered: favourites and recent ones first, what matches, what it costs. */

import type { ModelLine } from "../api/types";
import { money } from "../text/format";

export type Ability = "tools" | "images" | "reasoning";
export interface Group {
  kind: "favourites" | "recent" | "all";
  rows: ModelLine[];
}
export interface Wanted {
  query: string;
  wanted: Ability[];
  favourites: readonly string[];
  recent: readonly string[];
  titleOf: (model: ModelLine) => string;
}

const free = new Set(["pocket", "coder", "ollama", "lmstudio", "llamacpp", "vllm"]);

/** What the server does not say, it may be able to do; it is not shown as an ability. */
export function canDo(model: ModelLine, ability: Ability): boolean {
  if (!model.abilities) return false;
  // An ability that is left out has its default.
  return ability === "tools" ? model.abilities.tools !== false : !!model.abilities[ability];
}

/** `none`: it costs nothing. Null: not known. */
export function priceOf(model: ModelLine): string | "none" | null {
  if (free.has(model.provider)) return "none";
  const { input_usd: input, output_usd: output } = model.prices ?? {};
  return input == null || output == null ? null : `${short(input)} / ${short(output)}`;
}

function short(usd: number): string {
  return money(usd).replace(/\.00$/, "");
}

/** Every model once, in the first group that it belongs to. */
export function arrange(models: ModelLine[], { query, wanted, favourites, recent, titleOf }: Wanted): Group[] {
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = models.filter((model) => {
    const title = titleOf(model).toLowerCase();
    return terms.every((term) => title.includes(term)) && wanted.every((ability) => canDo(model, ability));
  });
  const byName = new Map(fits.map((model) => [model.name, model]));
  const take = (names: readonly string[]): ModelLine[] => {
    const rows = names.flatMap((name) => byName.get(name) ?? []);
    for (const row of rows) byName.delete(row.name);
    return rows;
  };
  const groups: Group[] = [
    { kind: "favourites", rows: take(favourites) },
    { kind: "recent", rows: take(recent) },
    { kind: "all", rows: [...byName.values()] },
  ];
  return groups.filter((group) => group.rows.length);
}

// --- the slider of the output limit: 0 is no limit, then twice as much each --------------------------

const least = 1_000;
export const limitSteps = 8;

export function limitOf(step: number): number | null {
  return step === 0 ? null : least * 2 ** (step - 1);
}

export function stepOf(limit: number | null): number {
  return limit === null ? 0 : Math.max(1, Math.min(limitSteps, Math.round(Math.log2(limit / least)) + 1));
}
