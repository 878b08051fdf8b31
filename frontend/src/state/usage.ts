import type { UsageLine } from "../api/types";

/** The models of a report, each once: one may have been named with its provider and, in imported turns, without. */
export function mergeNames(models: Readonly<Record<string, UsageLine>>): Record<string, UsageLine> {
  const out: Record<string, UsageLine> = {};
  const all = Object.keys(models);
  for (const [name, line] of Object.entries(models)) {
    const whole = all.filter((other) => other.slice(other.indexOf(":") + 1) === name && other !== name);
    // With two providers of the same model it is not known which of them answered.
    const key = whole.length === 1 ? whole[0]! : name;
    out[key] = out[key] ? add(out[key], line) : line;
  }
  return out;
}

function add(left: UsageLine, right: UsageLine): UsageLine {
  return {
    turns: left.turns + right.turns,
    input_tokens: left.input_tokens + right.input_tokens,
    output_tokens: left.output_tokens + right.output_tokens,
    cached_tokens: left.cached_tokens + right.cached_tokens,
    cost_usd: sum(left.cost_usd, right.cost_usd),
    saved_usd: sum(left.saved_usd, right.saved_usd),
  };
}

/** Null: not known. What is known of the one counts. */
function sum(left: number | null | undefined, right: number | null | undefined): number | null {
  return left == null && right == null ? null : (left ?? 0) + (right ?? 0);
}
