import { describe, expect, it } from "vitest";
import { reasonInGerman } from "../src/words/de/reasons";

type Said = Record<string, unknown>;

const english = import.meta.glob<Said>("../src/*words.ts", { eager: true });
const german = import.meta.glob<Said>("../src/words/de/*words.ts", { eager: true });

const nameOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** Every text of a file under its name; functions are called with values that show where they stand. */
function said(value: unknown, name: string, into: Map<string, string>): Map<string, string> {
  if (typeof value === "string") into.set(name, value);
  else if (typeof value === "function") for (const count of [1, 3]) said(called(value as (...given: unknown[]) => unknown, count), `${name}(${count})`, into);
  else if (value && typeof value === "object") for (const [key, inner] of Object.entries(value)) said(inner, `${name}.${key}`, into);
  return into;
}

/** Words take counts and texts. A count that is used as a text still tells whether it is said. */
function called(say: (...given: unknown[]) => unknown, count: number): unknown {
  for (const given of [count, `text${count}`]) {
    try {
      return say(...Array(say.length || 6).fill(given));
    } catch {
      continue;
    }
  }
  return undefined;
}

function textsOf(files: Record<string, Said>): Map<string, string> {
  const all = new Map<string, string>();
  for (const [path, names] of Object.entries(files)) {
    for (const [name, value] of Object.entries(names)) if (/[wW]ords$/.test(name)) said(value, `${nameOf(path)}:${name}`, all);
  }
  return all;
}

/** Said alike in both languages: names, and words that German took over. */
const same = new Set(
  [
    ["Everturn", "ChatGPT", "Claude", "Open WebUI", "LibreChat", "Anthropic", "OpenAI", "Google", "OpenRouter", "Ollama", "LM Studio", "llama.cpp", "vLLM"],
    ["Agent", "Audio", "Browser", "Budgets", "Chat", "Code", "Cron", "Details", "HTML", "JSON", "Jobs", "Markdown", "Minimal", "Name", "Normal", "PDF"],
    ["Parameter", "Prompt", "Prompts", "Sandbox", "Server", "Skill", "Skills", "Start", "System", "Text", "Token", "Tokens", "Version", "Video", "Webhook"],
    ["Name: 1", "Name: 3", "English", "Deutsch"],
  ].flat(),
);
/** Read by programs, or examples. */
const notWords = /csvColumns|addressExample|whoOf\.\d\.0|whenOf\.\d\.0/;

describe("German words", () => {
  it("exist for every file", () => {
    expect(Object.keys(german).map(nameOf).sort()).toEqual(Object.keys(english).map(nameOf).sort());
  });

  it("say what the English ones say, in other words", () => {
    const there = textsOf(german);
    const left = [...textsOf(english)].filter(([name, text]) => there.get(name) === text && !same.has(text) && !notWords.test(name) && /[a-z]{2}/.test(text.replace(/text\d/g, "")));
    expect(left.map(([name, text]) => `${name}: ${text}`)).toEqual([]);
  });

  it("give the reason of an approval, and leave what they do not know as it was said", () => {
    expect(reasonInGerman("It deletes whole folders. If allowed for this session or always, the agent may then run exactly rm -rf alt.")).toBe(
      "Der Befehl löscht ganze Ordner. Mit einer Erlaubnis für die Sitzung oder für immer darf der Agent dann genau ausführen: rm -rf alt",
    );
    expect(
      reasonInGerman("It runs without a sandbox (echo). If allowed for this session or always, the agent may then in /home/me/a run exactly echo One. Two.\necho 3."),
    ).toBe(
      "Der Befehl läuft ohne Sandbox (echo). Mit einer Erlaubnis für die Sitzung oder für immer darf der Agent dann in /home/me/a genau ausführen: echo One. Two.\necho 3",
    );
    expect(reasonInGerman("It reaches example.org. If allowed for this session or always, the agent may then reach example.org.")).toBe(
      "Der Befehl erreicht example.org. Mit einer Erlaubnis für die Sitzung oder für immer darf der Agent dann example.org erreichen",
    );
    expect(reasonInGerman("It sings.")).toBe("It sings.");
  });

  it("use du, never Sie", () => {
    const formal = [...textsOf(german)].filter(([, text]) => /\b(Ihnen|Ihre[mnrs]?|Ihr)\b|(?<!^|[.:!?] |„)\bSie\b/.test(text));
    expect(formal).toEqual([]);
  });
});
