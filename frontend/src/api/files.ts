/** The files of one session: how the server is asked for them. */

import { Problem, type Api } from "./client";
import type { FileChanges, FileHistory, FilesDiff, SavedFile, WorkspaceFiles } from "./types";

/** `now` (default: the folder), `start`, a turn, `before:` a turn, `made:` by a turn (without what was changed after
 * it), or a checkpoint. */
export type At = string;

export interface FileContent {
  /** Null: it is not text. */
  text: string | null;
  size: number;
  /** Names exactly these bytes. */
  tag: string;
  isCut: boolean;
}

export const textBytesMax = 1_000_000;
const uploadTimeoutMs = 600_000;

export class FilesApi {
  private readonly root: string;

  constructor(
    session: string,
    private readonly api: Api,
  ) {
    this.root = `api/sessions/${session}/files`;
  }

  list(path: string, at: At = "now"): Promise<WorkspaceFiles> {
    return this.api.get(this.root, { query: { path: path || undefined, at: nameAt(at) } });
  }

  /** Where a browser gets the bytes: to be shown, or to be saved. */
  address(path: string, at: At = "now", isView = false): string {
    return this.api.address(`${this.root}/content`, { path, at: nameAt(at), view: isView ? "true" : undefined });
  }

  /** A folder as a zip file; without a path, everything. */
  archive(path = "", at: At = "now"): string {
    return this.api.address(`${this.root}/archive`, { path: path || undefined, at: nameAt(at) });
  }

  /** The files that a turn made or changed, as a zip file. */
  archiveOfTurn(turnId: string): string {
    return this.api.address(`${this.root}/archive`, { at: `made:${turnId}`, since: `before:${turnId}` });
  }

  /** What a turn itself changed. */
  changesOfTurn(turnId: string): Promise<FileChanges> {
    return this.changes(`before:${turnId}`, `made:${turnId}`);
  }

  async changes(from: At, to: At): Promise<FileChanges> {
    const { changes, total } = await this.api.get<FilesDiff>(`${this.root}/diff`, { query: { from, to } });
    return { changes: changes ?? [], total: total ?? 0 };
  }

  /** How one file differs, line by line. */
  diff(path: string, from: At, to: At): Promise<FilesDiff> {
    return this.api.get(`${this.root}/diff`, { query: { from, to, path } });
  }

  /** The versions of a file that differ, newest first. */
  history(path: string): Promise<FileHistory> {
    return this.api.get(`${this.root}/history`, { query: { path } });
  }

  /** The beginning of a file, as text where it is text. */
  async content(path: string, at: At = "now", bytesMax = textBytesMax): Promise<FileContent> {
    const response = await this.api.raw("GET", `${this.root}/content`, { query: { path, at: nameAt(at) } });
    const { bytes, isCut } = await readBeginning(response, bytesMax);
    const size = isCut ? Number(response.headers.get("content-length") ?? bytes.length) : bytes.length;
    const tag = (response.headers.get("etag") ?? "").replaceAll('"', "");
    return { text: textOf(bytes, isCut), size, tag, isCut };
  }

  /** Put a file in place of the one with this tag; without a tag, only where no file is. */
  async save(path: string, body: Blob, tag: string | null): Promise<SavedFile> {
    const condition: Record<string, string> = tag === null ? { "if-none-match": "*" } : { "if-match": `"${tag}"` };
    const headers = { ...condition, "content-type": "application/octet-stream" };
    return this.api.put(`${this.root}/content`, { query: { path }, body, headers, timeoutMs: uploadTimeoutMs });
  }
}

function nameAt(at: At): At | undefined {
  return at === "now" ? undefined : at;
}

/** Another version is there than the one that was to be replaced. */
export function isStale(error: unknown): boolean {
  return error instanceof Problem && error.status === 412;
}

async function readBeginning(response: Response, bytesMax: number): Promise<{ bytes: Uint8Array; isCut: boolean }> {
  const reader = response.body!.getReader();
  const pieces: Uint8Array[] = [];
  let size = 0;
  while (size <= bytesMax) {
    const { value, done } = await reader.read();
    if (done) break;
    pieces.push(value);
    size += value.length;
  }
  const isCut = size > bytesMax;
  if (isCut) await reader.cancel();
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return { bytes: isCut ? bytes.slice(0, bytesMax) : bytes, isCut };
}

/** Null where it is not UTF-8 text. A text that was cut may end within a character. */
function textOf(bytes: Uint8Array, isCut: boolean): string | null {
  if (bytes.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes, { stream: isCut });
  } catch (error) {
    if (error instanceof TypeError) return null;
    throw error;
  }
}
