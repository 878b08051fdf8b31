import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

const server = process.env.EVERTURN_SERVER ?? "http://127.0.0.1:8420";

export default defineConfig({
  // Relative, because the server may live under a base path behind a proxy.
  base: "./",
  plugins: [svelte()],
  build: {
    outDir: "../src/everturn/web/page",
    emptyOutDir: true,
    target: "es2022",
    // A data: address in a style sheet would need a wider policy; files are cached anyway.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 900,
    modulePreload: { polyfill: false },
  },
  worker: { format: "es" },
  server: { proxy: { "/api": server, "/healthz": server, "/readyz": server, "/openapi.json": server } },
  resolve: process.env.VITEST ? { conditions: ["browser"] } : {},
  test: {
    environment: "jsdom",
    include: ["tests/**/*.test.ts"],
    restoreMocks: true,
    // Only a test that hangs is to fail for its time, not one beside a busy neighbour.
    testTimeout: 60_000,
  },
});
