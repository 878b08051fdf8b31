import { readdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";
import { wordsOfLanguage } from "./scripts/words.ts";

const server = process.env.EVERTURN_SERVER ?? "http://127.0.0.1:8420";

/** The shell in index.html is painted before the style sheets are there: they stand after it, in their order. */
function shellFirst(): Plugin {
  const sheets = /\s*<link rel="stylesheet"[^>]*>/g;
  return {
    name: "shell-first",
    enforce: "post",
    transformIndexHtml: (html) => {
      const links = html.match(sheets) ?? [];
      return html.replace(sheets, "").replace(/\s*<\/body>/, (end) => `${links.join("")}${end}`);
    },
  };
}

/** Every text file also as .br and .gz, which the server sends as they are. */
function packed(folder: string): Plugin {
  const brotli = (data: Buffer) =>
    promisify(brotliCompress)(data, { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: data.length } });
  const zip = (data: Buffer) => promisify(gzip)(data, { level: 9 });
  return {
    name: "packed",
    apply: "build",
    closeBundle: {
      order: "post",
      sequential: true,
      async handler() {
        for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
          if (!entry.isFile() || !/\.(js|css|html|svg|webmanifest)$/.test(entry.name)) continue;
          const path = join(entry.parentPath, entry.name);
          const data = await readFile(path);
          for (const [suffix, pack] of [[".br", brotli], [".gz", zip]] as const) {
            const small = await pack(data);
            if (small.length < data.length) await writeFile(path + suffix, small);
          }
        }
      },
    },
  };
}

const outDir = "../src/everturn/web/page";

export default defineConfig({
  // Relative, because the server may live under a base path behind a proxy.
  base: "./",
  // The tests take the English words as they are.
  plugins: [...(process.env.VITEST ? [] : [wordsOfLanguage(resolve("src"))]), svelte(), shellFirst(), packed(outDir)],
  build: {
    outDir,
    emptyOutDir: true,
    target: "es2022",
    // A data: address in a style sheet would need a wider policy; files are cached anyway.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 900,
    modulePreload: { polyfill: false },
    // What the first sight needs in one file: in small ones it compresses worse.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "page", test: /src\/App\.svelte$/ }] } } },
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
