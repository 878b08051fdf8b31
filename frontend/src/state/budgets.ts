/** Budgets as bars and words. */

import type { Budget, Usage } from "../api/types";
import { cents, count, money } from "../text/format";
import { locale } from "../text/language";

export type Unit = Budget["unit"];

export function amountText(unit: Unit, amount: number): string {
  if (unit === "tokens") return count(amount);
  return amount === 0 ? cents(0) : money(amount);
}

/** What a bar shows, in percent of the limit. Spent comes first: what is beyond the limit has no room. */
export interface BudgetBar {
  limit: number;
  left: number;
  spentShare: number;
  reservedShare: number;
}

/** What "Raise" allows on top. `offered`: as the ask says, in millionths of a dollar or in tokens. */
export function raisedBy(budget: Pick<Budget, "amount" | "unit">, offered: number | null | undefined): number {
  if (offered == null) return budget.amount;
  return budget.unit === "usd" ? offered / 1_000_000 : offered;
}

export function barOf(budget: Pick<Budget, "amount" | "extra" | "spent" | "reserved">): BudgetBar {
  const limit = budget.amount + budget.extra;
  const share = (amount: number) => (limit > 0 ? Math.min(100, (100 * amount) / limit) : amount > 0 ? 100 : 0);
  const spentShare = share(budget.spent);
  return {
    limit,
    left: Math.max(0, limit - budget.spent - budget.reserved),
    spentShare,
    reservedShare: Math.min(100 - spentShare, share(budget.reserved)),
  };
}

/** What a call needs and what is left, where something is left and not enough. `needed`: as the ask says. */
export function shortOf(budget: Parameters<typeof barOf>[0] & Pick<Budget, "unit"> | null | undefined, needed: number | null | undefined): { needed: number; left: number } | null {
  if (!budget || !needed) return null;
  const { left } = barOf(budget);
  const wanted = raisedBy(budget, needed);
  return left > 0 && wanted > left ? { needed: wanted, left } : null;
}

const order = ["session", "day", "month"];

/** The budgets that bound a turn of this session, the narrowest first. */
export function boundingSession(budgets: readonly Budget[], session: string): Budget[] {
  return budgets
    .filter((budget) => budget.scope === "day" || budget.scope === "month" || (budget.scope === "session" && budget.subject === session))
    .sort((left, right) => order.indexOf(left.scope) - order.indexOf(right.scope));
}

/** What a turn has used in this unit; null: its price is not known. */
export function usedOf(usage: Usage, unit: Unit): number | null {
  if (unit === "usd") return usage.cost_usd ?? null;
  return (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
}

/** The month of a period, in the time zone that the budget counts in: "November". */
export function monthOf(at: number, zone: string): string {
  return format(at, zone, { month: "long" });
}

/** The day on which a period turns over: "1 December". */
export function dayOf(at: number, zone: string): string {
  return format(at, zone, { day: "numeric", month: "long" });
}

function format(at: number, zone: string, options: Intl.DateTimeFormatOptions): string {
  try {
    return new Intl.DateTimeFormat(locale, { ...options, timeZone: zone }).format(at);
  } catch {
    // A time zone that this browser does not know.
    return new Intl.DateTimeFormat(locale, options).format(at);
  }
}
