/** Calls the server. Failures come as `Problem` (it answered no) or `Away` (it did not answer). */

import type { FileChange } from "./types";
import { problemWords } from "../problem-words";

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint = "",
    /** When the same may be asked again, where the server says so. */
    readonly retryAfterS = 0,
    /** Files that the request would have overwritten. */
    readonly conflicts: FileChange[] = [],
  ) {
    super(message);
  }
}

export class Away extends Error {
  constructor(
    message: string,
    /** 0: no answer at all; else the server, or what is before it, says that it cannot do this now. */
    readonly status = 0,
  ) {
    super(message);
  }
}

export interface Asking {
  body?: unknown;
  key?: string;
  version?: number;
  query?: Record<string, string | number | undefined>;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** How long an answer may take. */
  timeoutMs?: number;
}

export class Api {
  /** Called when the server says that the visitor is not signed in: with a password, or with its access token. */
  onSignedOut: (wants: "password" | "token") => void = () => {};

  constructor(readonly root: string) {}

  address(path: string, query: Asking["query"] = {}): string {
    const address = new URL(path, this.root);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) address.searchParams.set(name, String(value));
    }
    return address.href;
  }

  get<T>(path: string, asking: Asking = {}): Promise<T> {
    return this.ask<T>("GET", path, asking);
  }
  post<T>(path: string, asking: Asking = {}): Promise<T> {
    return this.ask<T>("POST", path, { ...asking, body: asking.body ?? {} });
  }
  put<T>(path: string, asking: Asking = {}): Promise<T> {
    return this.ask<T>("PUT", path, asking);
  }
  patch<T>(path: string, asking: Asking = {}): Promise<T> {
    return this.ask<T>("PATCH", path, asking);
  }
  delete<T>(path: string, asking: Asking = {}): Promise<T> {
    return this.ask<T>("DELETE", path, asking);
  }

  /** The answer as it came, for bytes. */
  async raw(method: string, path: string, asking: Asking = {}): Promise<Response> {
    const response = await this.send(method, path, asking);
    if (response.ok) return response;
    // A proxy's error page is not JSON; the status alone has to do.
    throw this.problem(response.status, await response.json().catch(() => null));
  }

  private async ask<T>(method: string, path: string, asking: Asking): Promise<T> {
    const response = await this.send(method, path, asking);
    if (response.status === 204) return undefined as T;
    const text = await response.text();
    let body: unknown = null;
    try {
      body = text ? JSON.parse(text) : null;
    } catch {
      // A proxy's error page is not JSON; the status alone has to do.
      if (response.ok) throw new Away("The server's answer was not readable.");
    }
    if (response.ok) return body as T;
    throw this.problem(response.status, body);
  }

  private async send(method: string, path: string, asking: Asking): Promise<Response> {
    const headers: Record<string, string> = { accept: "application/json", ...asking.headers };
    let body: BodyInit | undefined;
    if (asking.body instanceof Blob || asking.body instanceof FormData) body = asking.body;
    else if (asking.body !== undefined) {
      headers["content-type"] = "application/json";
      body = JSON.stringify(asking.body);
    }
    if (asking.key) headers["idempotency-key"] = asking.key;
    if (asking.version !== undefined) headers["if-match"] = `"${asking.version}"`;
    const signals = [AbortSignal.timeout(asking.timeoutMs ?? 30_000)];
    if (asking.signal) signals.push(asking.signal);
    const init: RequestInit = { method, headers, credentials: "same-origin", signal: AbortSignal.any(signals) };
    if (body !== undefined) init.body = body;
    try {
      return await fetch(this.address(path, asking.query), init);
    } catch (error) {
      throw new Away(error instanceof Error ? error.message : String(error));
    }
  }

  private problem(status: number, body: unknown): Problem | Away {
    const fields = (body ?? {}) as { code?: string; detail?: string; title?: string; hint?: string; retry_after_s?: number; conflicts?: FileChange[] };
    if (status === 401) this.onSignedOut(fields.code === "access_needed" ? "token" : "password");
    // The server is starting, stopping or behind a proxy that lost it: the same request can be tried again.
    if ((status === 502 || status === 503 || status === 504) && !damageCodes.has(fields.code ?? "")) return new Away(fields.detail ?? `HTTP ${status}`, status);
    return new Problem(status, fields.code ?? "error", fields.detail ?? fields.title ?? `HTTP ${status}`, fields.hint ?? "", fields.retry_after_s, fields.conflicts);
  }
}

/** Stored bytes are damaged or gone. The server can be reached, and asking again does not help. */
export const damageCodes: ReadonlySet<string> = new Set(["blob_damaged", "blob_missing", "file_missing", "tree_unreadable"]);

/** A key that no other request has. `randomUUID` does not exist on plain HTTP; this does. */
export function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function explain(error: unknown, away: string): string {
  if (error instanceof Problem && problemWords.said[error.code]) return problemWords.said[error.code]!;
  if (error instanceof Problem) return error.hint ? `${error.message} ${error.hint}` : error.message;
  if (error instanceof Away) return away;
  return error instanceof Error ? error.message : String(error);
}
