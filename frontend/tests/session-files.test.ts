import { beforeEach, describe, expect, it, vi } from "vitest";
import { Api, Away, Problem } from "../src/api/client";
import { SessionFiles } from "../src/app/session-files.svelte";
import { fileWords } from "../src/file-words";

/** A workspace behind the server's calls: paths and texts. A text is its own tag. */
class Workspace {
  readonly files = new Map<string, string>();
  isAway = false;
  isUnreadable = false;
  isDamaged = false;

  answer(url: URL, init: RequestInit): Response {
    const path = url.searchParams.get("path") ?? "";
    const there = this.files.get(path);
    if (url.pathname.endsWith("/content") && init.method === "PUT") return this.put(path, there, init);
    if (url.pathname.endsWith("/content")) {
      if (there === undefined) return problem(404, "not_found");
      if (this.isUnreadable) return problem(500, "file_unreadable");
      return new Response(there, { headers: { etag: `"${there.replace("\0", "0")}"`, "content-length": String(there.length) } });
    }
    if (url.pathname.endsWith("/diff") && this.isAway) return problem(503, "storage_away");
    if (url.pathname.endsWith("/diff") && this.isDamaged) return problem(503, "blob_damaged");
    if (url.pathname.endsWith("/diff")) return Response.json({ changes: [], total: 0 });
    const inside = [...this.files.keys()].filter((file) => !path || file.startsWith(`${path}/`));
    return Response.json({ path, is_cut: false, files: inside.map((file) => ({ path: file, name: file, kind: "file", size: 1, modified_at: 1 })) });
  }

  private put(path: string, there: string | undefined, init: RequestInit): Response {
    const headers = init.headers as Record<string, string>;
    if (this.isAway) return problem(503, "storage_away");
    if (headers["if-none-match"] === "*" && there !== undefined) return problem(412, "stale");
    if (headers["if-match"] && headers["if-match"] !== `"${there ?? ""}"`) return problem(412, "stale");
    this.files.set(path, `saved ${(init.body as Blob).size}`);
    return Response.json({ path, size: 1, sha256: "x", checkpoint: "chk_1" });
  }
}

function problem(status: number, code: string): Response {
  return Response.json({ status, code, detail: code }, { status });
}

let workspace: Workspace;
let files: SessionFiles;

beforeEach(() => {
  workspace = new Workspace();
  vi.stubGlobal("fetch", (url: string, init: RequestInit) => Promise.resolve(workspace.answer(new URL(url), init)));
  files = new SessionFiles("ses_1", new Api("http://here/"));
});

describe("comparing", () => {
  it("tells damaged bytes from a server that cannot be reached", async () => {
    workspace.isDamaged = true;
    await expect(files.api.diff("a.txt", "before", "now")).rejects.toSatisfy((error) => error instanceof Problem && error.code === "blob_damaged");
    workspace.isAway = true;
    await expect(files.api.diff("a.txt", "before", "now")).rejects.toBeInstanceOf(Away);
  });
});

describe("editing a file", () => {
  it("saves in place of what was read", async () => {
    workspace.files.set("a.txt", "one");
    files.startEdit("a.txt", await files.api.content("a.txt"));
    files.typeEdit("a.txt", "one two");
    expect(await files.saveEdit("a.txt")).toBe(true);
    expect(workspace.files.get("a.txt")).toBe("saved 7");
    expect(files.edits.size).toBe(0);
    expect(files.written).toBe(1);
  });

  it("overwrites nothing that came meanwhile, and keeps both", async () => {
    workspace.files.set("a.txt", "one");
    files.startEdit("a.txt", await files.api.content("a.txt"));
    files.typeEdit("a.txt", "mine");
    workspace.files.set("a.txt", "theirs");
    expect(await files.saveEdit("a.txt")).toBe(false);
    expect(workspace.files.get("a.txt")).toBe("theirs");
    const edit = files.edits.get("a.txt")!;
    expect([edit.text, edit.theirs?.text, edit.problem]).toEqual(["mine", "theirs", fileWords.fileChangedMeanwhile]);
    // Said once more, knowing of the other one.
    expect(await files.saveEdit("a.txt")).toBe(true);
    expect(workspace.files.get("a.txt")).toBe("saved 4");
  });

  it("can bring back a file that is gone", async () => {
    workspace.files.set("a.txt", "one");
    files.startEdit("a.txt", await files.api.content("a.txt"));
    workspace.files.delete("a.txt");
    expect(await files.saveEdit("a.txt")).toBe(false);
    expect(files.edits.get("a.txt")?.theirs?.tag).toBe("");
    expect(await files.saveEdit("a.txt")).toBe(true);
  });

  it("keeps the text when nothing can be saved", async () => {
    workspace.files.set("a.txt", "one");
    files.startEdit("a.txt", await files.api.content("a.txt"));
    workspace.isAway = true;
    expect(await files.saveEdit("a.txt")).toBe(false);
    expect(files.edits.get("a.txt")).toMatchObject({ text: "one", problem: fileWords.filesNotSaved, isSaving: false });
  });

  it("can be saved again when the other version could not be read", async () => {
    workspace.files.set("a.txt", "one");
    files.startEdit("a.txt", await files.api.content("a.txt"));
    workspace.files.set("a.txt", "theirs");
    workspace.isUnreadable = true;
    expect(await files.saveEdit("a.txt")).toBe(false);
    expect(files.edits.get("a.txt")).toMatchObject({ text: "one", isSaving: false, theirs: null });
    expect(files.edits.get("a.txt")?.problem).toContain("file_unreadable");
    workspace.isUnreadable = false;
    expect(await files.saveEdit("a.txt")).toBe(false);
    expect(files.edits.get("a.txt")?.theirs?.text).toBe("theirs");
  });

  it("keeps what is typed while the text is being saved, and forgets what is discarded then", async () => {
    workspace.files.set("a.txt", "one");
    files.startEdit("a.txt", await files.api.content("a.txt"));
    files.typeEdit("a.txt", "two");
    const saving = files.saveEdit("a.txt");
    files.typeEdit("a.txt", "two three");
    expect(await saving).toBe(true);
    expect(files.edits.get("a.txt")).toMatchObject({ text: "two three", began: "two", tag: "x", isSaving: false });
    workspace.isAway = true;
    const failing = files.saveEdit("a.txt");
    files.dropEdit("a.txt");
    expect(await failing).toBe(false);
    expect(files.edits.size).toBe(0);
  });

  it("is not left with unsaved text before the browser has asked", async () => {
    const isAsked = () => !dispatchEvent(new Event("beforeunload", { cancelable: true }));
    workspace.files.set("a.txt", "one");
    files.startEdit("a.txt", await files.api.content("a.txt"));
    expect(isAsked()).toBe(false);
    files.typeEdit("a.txt", "one two");
    expect(isAsked()).toBe(true);
    expect(await files.saveEdit("a.txt")).toBe(true);
    expect(isAsked()).toBe(false);
    files.startEdit("a.txt", await files.api.content("a.txt"));
    files.typeEdit("a.txt", "three");
    files.dropEdit("a.txt");
    expect(isAsked()).toBe(false);
  });
});

describe("uploading", () => {
  const file = () => new File(["new"], "a.txt");

  it("puts files into the folder", async () => {
    await files.upload("ops", [file()]);
    expect([...workspace.files.keys()]).toEqual(["ops/a.txt"]);
    expect(files.uploads).toEqual([]);
    expect(files.shown?.path).toBe("ops/a.txt");
  });

  it("asks before it replaces a file", async () => {
    workspace.files.set("a.txt", "old");
    workspace.files.set("a (2).txt", "older");
    await files.upload("", [file()]);
    expect(workspace.files.get("a.txt")).toBe("old");
    expect(files.uploads.map((one) => one.state)).toEqual(["exists"]);
    await files.keepBoth(files.uploads[0]!);
    expect(workspace.files.get("a (3).txt")).toBe("saved 3");
    await files.upload("", [file()]);
    await files.replace(files.uploads[0]!);
    expect(workspace.files.get("a.txt")).toBe("saved 3");
    expect(files.uploads).toEqual([]);
  });

  it("keeps a file that could not be sent, to try again", async () => {
    workspace.isAway = true;
    await files.upload("", [file()]);
    expect(files.uploads[0]).toMatchObject({ state: "failed", problem: fileWords.filesNotSaved });
    workspace.isAway = false;
    await files.again(files.uploads[0]!);
    expect(workspace.files.has("a.txt")).toBe(true);
  });
});

describe("the beginning of a file", () => {
  it("is text only where it is text, and says where it was cut", async () => {
    workspace.files.set("a.txt", "äöü");
    expect(await files.api.content("a.txt", "now", 3)).toMatchObject({ text: "ä", isCut: true });
    workspace.files.set("b", "a\0b");
    expect((await files.api.content("b")).text).toBeNull();
    workspace.files.set("empty", "");
    expect(await files.api.content("empty")).toMatchObject({ text: "", size: 0, isCut: false });
  });
});
