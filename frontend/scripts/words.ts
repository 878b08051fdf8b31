/**
 * The words of the page in the reader's language.
 *
 * `src/*words.ts` hold the English ones, `src/words/LANGUAGE/` the same files in another language. The page imports
 * the English file, which gives the types; this plugin puts a door in its place that loads the file of the chosen
 * language and no other. Words come in two groups, so that the first sight loads its own only.
 */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import type { Plugin } from "vite";

/** Needed by the first sight. All other files are loaded with the first part of the page that uses one of them. */
const firstFiles = ["words", "exact-words", "find-words", "problem-words"];
const languages = ["en", "de"];
const door = "\0words-door:";
const group = "\0words-of:";

export function wordsOfLanguage(source: string): Plugin {
  const files = readdirSync(source)
    .filter((name) => /(^|-)words\.ts$/.test(name))
    .map((name) => basename(name, ".ts"));
  const groupOf = (name: string) => (firstFiles.includes(name) ? "first" : "later");
  const ofGroup = (wanted: string) => files.filter((name) => groupOf(name) === wanted);
  const isWords = (path: string) => dirname(path) === source && files.includes(basename(path, ".ts"));
  const fileNames: Record<string, string[]> = {};

  return {
    name: "words-of-language",
    enforce: "pre",
    resolveId(id, importer) {
      if (id.startsWith(door) || id.startsWith(group)) return id;
      const from = importer?.split("?")[0];
      if (!from || from.startsWith("\0") || !/(^|[/-])words$/.test(id)) return null;
      const path = resolve(dirname(from), `${id}.ts`);
      const language = isWords(from) ? "en" : languages.find((one) => dirname(from) === join(source, "words", one));
      if (!language) return isWords(path) ? door + groupOf(basename(id)) : null;
      // Words of the second group that build on the first: they are loaded already.
      const isAcross = groupOf(basename(id)) !== groupOf(basename(from, ".ts"));
      return isAcross ? `${group}${language}/${groupOf(basename(id))}` : null;
    },
    load(id) {
      if (id.startsWith(door)) return doorTo(id.slice(door.length), ofGroup(id.slice(door.length)), source);
      if (!id.startsWith(group)) return null;
      const [language, name] = id.slice(group.length).split("/") as [string, string];
      return ofGroup(name).map((file) => `export * from ${JSON.stringify(fileOf(source, language, file))};`).join("\n");
    },
    generateBundle(_options, bundle) {
      for (const chunk of Object.values(bundle)) {
        const id = chunk.type === "chunk" ? chunk.facadeModuleId : null;
        if (chunk.type === "chunk" && id?.startsWith(group)) fileNames[id.slice(group.length)] = [chunk.fileName, ...chunk.imports];
      }
    },
    // theme.js, which knows the language first, has its words fetched beside the page's script.
    transformIndexHtml: {
      order: "post",
      handler: (html) => {
        const given = languages.map((one) => `data-words-${one}="${(fileNames[`${one}/first`] ?? []).map((name) => `./${name}`).join(" ")}"`);
        return html.replace(/<script src="\.\/theme\.js"/, (start) => [start, ...given].join(" "));
      },
    },
  };
}

function fileOf(source: string, language: string, file: string): string {
  const twin = join(source, "words", language, `${file}.ts`);
  return existsSync(twin) ? twin : join(source, `${file}.ts`);
}

/** The names of a group. Each file exports constants only, and imports other words only. */
function doorTo(name: string, files: string[], source: string): string {
  const names = files.flatMap((file) => {
    const text = readFileSync(join(source, `${file}.ts`), "utf8");
    if (/^import (?!type )(?!.* from "\.\/[\w-]*words";)/m.test(text)) throw new Error(`${file}.ts may import other words only: the page waits for it`);
    return [...text.matchAll(/^export const (\w+)/gm)].map((found) => found[1]!);
  });
  const choices = languages.map((one) => `${one}: () => import(${JSON.stringify(`${group}${one}/${name}`)})`).join(", ");
  return [
    `import { language, untilLoaded } from ${JSON.stringify(join(source, "text/language.ts"))};`,
    `const { ${names.join(", ")} } = await untilLoaded({ ${choices} }[language]);`,
    `export { ${names.join(", ")} };`,
  ].join("\n");
}
