/** What a tool call is, in the words and signs of the page. */

import type { IconName } from "../views/icons";
import type { CallItem } from "./items";

export interface ToolLook {
  verb: string;
  icon: IconName;
}

const looks: [RegExp, ToolLook][] = [
  [/^(terminal|shell|bash|run|exec|command|python|process)/, { verb: "run", icon: "terminal" }],
  [/(edit|patch|replace)/, { verb: "edit", icon: "file-pen" }],
  [/(write|create_file|save)/, { verb: "write", icon: "file-pen" }],
  [/^(ask|question)/, { verb: "ask", icon: "circle-help" }],
  [/(list|tree|glob|ls)/, { verb: "list", icon: "folder" }],
  [/(web_search|grep|search|find)/, { verb: "search", icon: "search" }],
  [/(fetch|web|http|browse|url)/, { verb: "fetch", icon: "globe" }],
  [/(remember|note)/, { verb: "remember", icon: "brain" }],
  [/(recall|memory)/, { verb: "recall", icon: "brain" }],
  [/(helper|delegate|task|agent)/, { verb: "helper", icon: "users" }],
  [/(plan|todo)/, { verb: "plan", icon: "list-checks" }],
  [/(read|view|open|cat)/, { verb: "read", icon: "file-text" }],
];

export function lookOf(name: string): ToolLook {
  const plain = name.toLowerCase();
  return looks.find(([pattern]) => pattern.test(plain))?.[1] ?? { verb: "use", icon: "wrench" };
}

export function argumentsOf(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
  } catch {
    // The model wrote something that is no JSON; it is shown as it is.
    return {};
  }
}

/** One line for people: the label that the server gave, or the argument that says most. */
export function labelOf(call: Pick<CallItem, "label" | "name" | "arguments">): string {
  if (call.label) return call.label;
  const given = argumentsOf(call.arguments);
  for (const name of ["command", "cmd", "path", "file", "url", "query", "pattern", "text", "task", "code"]) {
    const value = given[name];
    if (typeof value === "string" && value) return value.split("\n")[0]!;
  }
  return call.name;
}

/** The whole of what is to be approved: never shortened. */
export function wholeOf(call: Pick<CallItem, "label" | "name" | "arguments">): string {
  const given = argumentsOf(call.arguments);
  const command = given.command ?? given.cmd ?? given.code;
  if (typeof command === "string" && Object.keys(given).length === 1) return command;
  const entries = Object.entries(given);
  if (!entries.length) return call.arguments || call.label || call.name;
  return entries
    .map(([name, value]) => (typeof value === "string" ? `${name}: ${value}` : `${name}: ${JSON.stringify(value)}`))
    .join("\n");
}

interface DiffShown {
  path: string;
  diff: string;
}

/** A diff that a tool wants to have drawn, wherever it put it. */
export function diffOf(display: unknown): DiffShown | null {
  if (!display || typeof display !== "object") return null;
  const told = display as Record<string, unknown>;
  const diff = told.diff ?? told.unified ?? told.patch;
  if (typeof diff !== "string" || !diff) return null;
  return { path: typeof told.path === "string" ? told.path : "", diff };
}

export function exitOf(display: unknown): number | null {
  const told = display as { exit_code?: unknown; exit?: unknown } | null;
  const code = told?.exit_code ?? told?.exit;
  return typeof code === "number" ? code : null;
}

export function lineCount(text: string): number {
  return text ? text.replace(/\n$/, "").split("\n").length : 0;
}
