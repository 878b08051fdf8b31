// @vitest-environment node
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
// @ts-expect-error a script without types of its own
import { generate } from "../scripts/types.mjs";
import document from "../src/api/openapi.json";

it("the page's types are what its copy of the server's description says", async () => {
  const kept = readFileSync(new URL("../src/api/schema.ts", import.meta.url), "utf8");
  expect(await generate(document)).toBe(kept);
});
