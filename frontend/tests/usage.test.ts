import { describe, expect, it } from "vitest";
import { mergeNames } from "../src/state/usage";

const line = (turns: number, cost: number | null = null) => ({ turns, input_tokens: turns * 10, output_tokens: turns, cached_tokens: 0, cost_usd: cost, saved_usd: null });

describe("a usage report", () => {
  it("has a model once that was named with and without its provider", () => {
    const merged = mergeNames({ "gpt-4o": line(2), "openai:gpt-4o": line(3, 0.5), "ollama:qwen3:8b": line(1), "qwen3:8b": line(1) });
    expect(Object.keys(merged)).toEqual(["openai:gpt-4o", "ollama:qwen3:8b"]);
    expect(merged["openai:gpt-4o"]).toEqual({ turns: 5, input_tokens: 50, output_tokens: 5, cached_tokens: 0, cost_usd: 0.5, saved_usd: null });
  });

  it("keeps a bare name apart where two providers have the model", () => {
    expect(Object.keys(mergeNames({ "gpt-4o": line(1), "azure:gpt-4o": line(1), "openai:gpt-4o": line(1) }))).toHaveLength(3);
  });
});
