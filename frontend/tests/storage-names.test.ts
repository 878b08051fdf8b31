import { beforeEach, describe, expect, it, vi } from "vitest";
import { Api } from "../src/api/client";
import { Post, writeNewFolder } from "../src/app/post.svelte";
import { OpenSession } from "../src/app/open-session.svelte";
import { Prefs } from "../src/app/prefs.svelte";
import { Disk } from "../src/keep/disk";
import type { Unsent } from "../src/keep/unsent";
import type { Link } from "../src/wire/link";

/** Drafts and unsent messages of every browser lie under these names: another name would lose them. */
const database = { name: "everturn", version: 1, stores: [["outbox", "key"], ["files", "id"]] };
const texts = [
  "everturn.draft.new",
  "everturn.draft.ses_1",
  "everturn.files.ses_1",
  "everturn.folder.new",
  "everturn.language",
  "everturn.notify",
  "everturn.panel",
  "everturn.side",
  "everturn.side-width",
  "everturn.size",
  "everturn.steers.ses_1",
  "everturn.theme",
];

describe("the names in the browser's storage", () => {
  beforeEach(() => {
    localStorage.clear();
    vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => undefined }));
  });

  it("are those of the first release: localStorage", () => {
    const prefs = new Prefs();
    prefs.setTheme("dark");
    prefs.setSize("large");
    prefs.setLanguage("de");
    prefs.toggleSide();
    prefs.setPanel(true);
    prefs.setSideWidth(300);
    prefs.setNotifies(true);
    const ignore = (): void => undefined;
    const post = new Post(new Api("http://here/"), new Disk(), ignore, ignore, ignore);
    post.writeDraft(null, "for a new session");
    post.writeDraft("ses_1", "words", [{ id: "f", name: "a.txt", type: "text/plain", size: 1, fileId: null }]);
    writeNewFolder("/srv/site");
    const opened = new OpenSession("ses_1", new Api("http://here/"), {} as Link, ignore);
    const steer = { text: "now", whenBusy: "steer", files: [] } as unknown as Unsent;
    opened.accepted(steer, { turn: { id: "trn_1" }, is_steering: true } as never);
    expect(Object.keys(localStorage).sort()).toEqual(texts);
  });

  it("are those of the first release: IndexedDB", async () => {
    const made = { name: "", version: 0, stores: [] as unknown[] };
    const request = {
      result: { createObjectStore: (name: string, options: { keyPath: string }) => made.stores.push([name, options.keyPath]) },
    } as unknown as IDBOpenDBRequest;
    vi.stubGlobal("indexedDB", {
      open: (name: string, version: number) => {
        Object.assign(made, { name, version });
        queueMicrotask(() => {
          request.onupgradeneeded?.({} as IDBVersionChangeEvent);
          request.onerror?.({} as Event);
        });
        return request;
      },
    });
    await new Disk().all("outbox");
    expect(made).toEqual(database);
  });
});
