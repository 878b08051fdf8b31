/** What a tool call is, in the words and signs of the page. */

import { visible } from "../text/exact";
import { markChanges, readDiff, type DiffLine, type FileDiff } from "../text/diff";
import type { IconName } from "../views/icons";
import type { CallItem } from "./items";

export interface ToolLook {
  verb: string;
  icon: IconName;
}

const looks: [RegExp, ToolLook][] = [
  [/^skill$/, { verb: "use", icon: "book-open" }],
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

/** What a call does, as ``words.tools`` names it. A command in the background is only started by its call. */
export function verbOf(call: Pick<CallItem, "name" | "arguments">): string {
  const { verb } = lookOf(call.name);
  return verb === "run" && argumentsOf(call.arguments).background === true ? "start" : verb;
}

/** The sign of a call; a job has its own. */
export function iconOf(call: Pick<CallItem, "name" | "arguments">): IconName {
  return verbOf(call) === "start" ? "activity" : lookOf(call.name).icon;
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
  return visible(plainLabel(call));
}

function plainLabel(call: Pick<CallItem, "label" | "name" | "arguments">): string {
  if (call.label) return call.label;
  const given = argumentsOf(call.arguments);
  for (const name of ["command", "cmd", "path", "file", "url", "query", "pattern", "text", "task", "code"]) {
    const value = given[name];
    if (typeof value === "string" && value) return value.split("\n")[0]!;
  }
  return call.name;
}

/** The tool that is called and what it is given: a tool that was found is called through another one. */
export function calledOf(call: Pick<CallItem, "name" | "arguments">): Pick<CallItem, "name" | "arguments"> {
  if (call.name !== "call_tool") return { name: call.name, arguments: call.arguments };
  const { name, arguments: inner, ...more } = argumentsOf(call.arguments);
  const isPlain = typeof name === "string" && name !== "" && typeof inner === "object" && inner !== null && !Array.isArray(inner);
  // Whatever else it holds is shown as it is.
  return isPlain && !Object.keys(more).length ? { name, arguments: JSON.stringify(inner) } : { name: call.name, arguments: call.arguments };
}

/** One argument of a call. The name is empty where it says nothing: for a command or a program alone. */
export interface Part {
  name: string;
  text: string;
}

/** The whole of a call, argument by argument: never shortened. */
export function partsOf(given: Pick<CallItem, "label" | "name" | "arguments">): Part[] {
  const call = { ...given, ...calledOf(given) };
  const entries = Object.entries(argumentsOf(call.arguments));
  if (!entries.length) return [{ name: "", text: call.arguments || call.label || call.name }];
  const isPlain = entries.length === 1 && ["command", "cmd", "code", "patch"].includes(entries[0]![0]);
  return entries.map(([name, value]) => ({
    name: isPlain ? "" : name,
    text: typeof value === "string" ? value : JSON.stringify(value, null, 2),
  }));
}

/** The same as one text. */
export function wholeOf(call: Pick<CallItem, "label" | "name" | "arguments">): string {
  return partsOf(call)
    .map(({ name, text }) => visible(name ? `${name}: ${text}` : text))
    .join("\n");
}

/** One argument as a person edits it: text as it is, everything else as JSON. */
export interface Field {
  name: string;
  text: string;
  isText: boolean;
}

export function fieldsOf(given: string): Field[] {
  const entries = Object.entries(argumentsOf(given));
  if (!entries.length) return [{ name: "", text: given || "{}", isText: true }];
  return entries.map(([name, value]) =>
    typeof value === "string" ? { name, text: value, isText: true } : { name, text: JSON.stringify(value, null, 2), isText: false },
  );
}

/** The arguments that the fields make, or the name of the field that is no JSON. */
export function argumentsFrom(fields: Field[]): { given: string } | { wrong: string } {
  if (fields.length === 1 && !fields[0]!.name) return { given: fields[0]!.text };
  const made: Record<string, unknown> = {};
  for (const field of fields) {
    try {
      made[field.name] = field.isText ? field.text : JSON.parse(field.text);
    } catch {
      return { wrong: field.name };
    }
  }
  return { given: JSON.stringify(made) };
}

interface HunkLine {
  sign: string;
  old?: number | null;
  new?: number | null;
  text: string;
}
interface DiffDisplay {
  kind?: string;
  path?: string;
  diff?: string;
  hunks?: { lines: HunkLine[] }[];
  files?: DiffDisplay[];
  added?: number;
  removed?: number;
}

/** The edits that a tool wants to have drawn. */
export function diffsOf(display: unknown): FileDiff[] {
  if (!display || typeof display !== "object") return [];
  const given = display as DiffDisplay;
  if (Array.isArray(given.files) && given.kind === "diffs") return given.files.flatMap(diffsOf);
  const path = given.path ?? "";
  if (typeof given.diff === "string" && given.diff) return [readDiff(given.diff, path)];
  if (!Array.isArray(given.hunks)) return [];
  return [fromHunks(path, given)];
}

function fromHunks(path: string, given: DiffDisplay): FileDiff {
  const lines: DiffLine[] = [];
  for (const hunk of given.hunks!) {
    if (lines.length) lines.push({ kind: "gap", number: null, pieces: [] });
    for (const line of hunk.lines) {
      const kind = line.sign === "+" ? "add" : line.sign === "-" ? "del" : "same";
      lines.push({ kind, number: (kind === "del" ? line.old : line.new) ?? null, pieces: [{ text: line.text, isMarked: false }] });
    }
  }
  return { path, added: given.added ?? 0, removed: given.removed ?? 0, lines: markChanges(lines) };
}

export function exitOf(display: unknown): number | null {
  const given = display as { exit_code?: unknown; exit?: unknown } | null;
  const code = given?.exit_code ?? given?.exit;
  return typeof code === "number" ? code : null;
}

/** A short fact about what came out, where the tool given one. */
export function factOf(display: unknown): { kind: string; count: number } | null {
  const given = display as { kind?: string; lines?: number; matches?: number; count?: number } | null;
  const count = given?.lines ?? given?.matches ?? given?.count;
  return given?.kind && typeof count === "number" ? { kind: given.kind, count } : null;
}

export interface TodoItem {
  text: string;
  state: string;
}

export function todosOf(display: unknown): TodoItem[] {
  const given = display as { kind?: string; items?: Record<string, unknown>[] } | null;
  if (given?.kind !== "todo" || !Array.isArray(given.items)) return [];
  return given.items.map((item) => ({
    text: String(item.text ?? item.title ?? item.step ?? ""),
    state: String(item.state ?? item.status ?? (item.is_done ? "done" : "open")),
  }));
}

export function lineCount(text: string): number {
  return text ? text.replace(/\n$/, "").split("\n").length : 0;
}

export interface ToolImage {
  id: string;
  name: string;
}

export interface ToolFile {
  id: string;
  name: string;
  size: number;
}

/** Files that a tool gave; they are artifacts. */
export function filesOf(display: unknown): ToolFile[] {
  const files = (display as { files?: unknown } | null)?.files;
  if (!Array.isArray(files)) return [];
  return files
    .map((file: Record<string, unknown>) => ({ id: String(file?.["id"] ?? ""), name: String(file?.["name"] ?? ""), size: Number(file?.["size"] ?? 0) }))
    .filter((file) => file.id);
}

/** Pictures that a tool gave; they are artifacts. */
export function imagesOf(display: unknown): ToolImage[] {
  const given = display as { kind?: string; items?: Record<string, unknown>[] } | null;
  if (given?.kind !== "images" || !Array.isArray(given.items)) return [];
  return given.items.map((item) => ({ id: String(item["id"] ?? ""), name: String(item["name"] ?? "") })).filter((item) => item.id);
}
