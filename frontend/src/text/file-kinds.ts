/** What a file is, told by its name: how the page shows it and what it calls it. */

import { fileWords } from "../file-words";

/** How a file can be previewed. */
export type Look = "image" | "pdf" | "audio" | "video" | "table" | "markdown" | "html" | "text" | "none";

export interface FileKind {
  look: Look;
  word: string;
  icon: "image" | "table" | "file-code" | "file-text" | "file";
  /** The language that colours it, where it is text. */
  lang: string;
}

const endings: Record<Exclude<Look, "text">, string[]> = {
  image: ["png", "jpg", "jpeg", "gif", "webp", "avif", "svg", "bmp", "ico"],
  pdf: ["pdf"],
  audio: ["mp3", "wav", "ogg", "oga", "opus", "m4a", "flac", "aac"],
  video: ["mp4", "webm", "mov", "m4v", "ogv"],
  table: ["csv", "tsv"],
  markdown: ["md", "markdown"],
  html: ["html", "htm"],
  none: [
    "zip", "gz", "tgz", "bz2", "xz", "zst", "7z", "tar", "rar", "jar", "whl", "deb", "iso", "bin", "exe", "dll", "so", "o", "a",
    "class", "pyc", "wasm", "sqlite", "db", "docx", "xlsx", "pptx", "odt", "ods", "odp", "epub", "ttf", "otf", "woff", "woff2",
    "parquet", "npy", "npz", "pkl", "pt", "onnx", "gguf", "heic", "tif", "tiff", "psd", "mkv", "avi",
  ],
};
const looks = new Map<string, Look>(
  Object.entries(endings).flatMap(([look, names]) => names.map((name): [string, Look] => [name, look as Look])),
);
const code = new Set([
  "c", "cc", "cpp", "cs", "css", "go", "h", "hpp", "java", "js", "jsx", "json", "kt", "lua", "mjs", "php", "py", "rb", "rs", "sql",
  "svelte", "swift", "toml", "ts", "tsx", "vue", "xml", "yaml", "yml", "ini", "conf", "service", "dockerfile", "makefile", "html", "htm",
]);
const scripts = new Set(["sh", "bash", "zsh", "fish", "ps1", "bat"]);

export function kindOf(path: string): FileKind {
  const name = nameOf(path).toLowerCase();
  const ending = name.includes(".") ? name.slice(name.lastIndexOf(".") + 1) : name;
  const look = looks.get(ending) ?? "text";
  return { look, word: wordOf(look, ending), icon: iconOf(look, ending), lang: look === "none" ? "" : ending };
}

function wordOf(look: Look, ending: string): string {
  if (look !== "text") return fileWords.fileKinds[look];
  if (scripts.has(ending)) return fileWords.fileKinds.script;
  return code.has(ending) ? fileWords.fileKinds.code : fileWords.fileKinds.text;
}

function iconOf(look: Look, ending: string): FileKind["icon"] {
  if (look === "image" || look === "table") return look;
  if (look === "html" || scripts.has(ending) || code.has(ending)) return "file-code";
  return look === "text" || look === "markdown" || look === "pdf" ? "file-text" : "file";
}

export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** The folder that holds it; empty: the workspace itself. */
export function folderOf(path: string): string {
  const at = path.lastIndexOf("/");
  return at < 0 ? "" : path.slice(0, at);
}

/** The path of a copy: "notes.md" and 2 make "notes (2).md". */
export function numberCopy(path: string, copy: number): string {
  const name = nameOf(path);
  const dot = name.lastIndexOf(".");
  const stem = dot > 0 ? name.slice(0, dot) : name;
  const base = path.slice(0, path.length - name.length);
  return `${base}${stem} (${copy})${name.slice(stem.length)}`;
}

/** Endings of common host names. None of them is a usual ending of a file. */
const hostEndings = new Set(
  "com org net edu gov int info io dev app ai co me tv eu uk us ca au nz de at ch fr it es pt nl be lu dk se fi pl cz ie jp kr cn br mx xyz tech cloud online site blog wiki news shop".split(" "),
);

/** Whether an address without a scheme begins with the name of a host: "example.com/page", "www.example.museum". */
export function isHost(address: string): boolean {
  const name = /^((?:[a-z0-9-]+\.)+)([a-z]{2,})(?::\d+)?(?:[/?#]|$)/i.exec(address);
  return name !== null && (name[1]!.toLowerCase().startsWith("www.") || hostEndings.has(name[2]!.toLowerCase()));
}

/** Whether an address in a text is a path, and not an address on the web or of the server's own. */
export function isPath(address: string): boolean {
  const isElsewhere = /^[a-z][a-z0-9+.-]*:/i.test(address) || /^[/#?]/.test(address) || address.includes("\\");
  return address !== "" && !isElsewhere && !isHost(address) && !/^(\.\/)?api\/(files|artifacts)\//.test(address);
}

/** The path in the workspace that a text in a folder names; null where it leads out. */
export function workspacePath(address: string, folder = ""): string | null {
  if (!isPath(address)) return null;
  const parts: string[] = folder ? folder.split("/") : [];
  for (const part of decode(address.split(/[?#]/, 1)[0]!).split("/")) {
    if (part === "..") {
      if (!parts.length) return null;
      parts.pop();
    } else if (part && part !== ".") parts.push(part);
  }
  return parts.length ? parts.join("/") : null;
}

function decode(address: string): string {
  try {
    return decodeURIComponent(address);
  } catch {
    // A per cent sign that is part of the name.
    return address;
  }
}
