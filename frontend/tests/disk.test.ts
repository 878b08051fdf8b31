import { beforeEach, describe, expect, it, vi } from "vitest";
import { Disk, readText, writeText } from "../src/keep/disk";

describe("a browser that keeps nothing", () => {
  beforeEach(() => {
    vi.stubGlobal("indexedDB", {
      open: () => {
        throw new DOMException("refused", "SecurityError");
      },
    });
  });

  it("has nothing from earlier, and says that it does not keep what it is given", async () => {
    const disk = new Disk();
    expect(await disk.all("outbox")).toEqual([]);
    expect(await disk.put("files", "a", { id: "a" })).toBe(false);
  });

  it("still hands out what it was given while the page lasts", async () => {
    const disk = new Disk();
    await disk.put("files", "a", { id: "a", blob: "bytes" });
    expect(await disk.get("files", "a")).toEqual({ id: "a", blob: "bytes" });
    await disk.delete("files", "a");
    await expect(disk.get("files", "a")).rejects.toThrow("refused");
  });

  it("says that a draft was not taken", () => {
    vi.stubGlobal("localStorage", {
      getItem: () => {
        throw new DOMException("off", "SecurityError");
      },
      setItem: () => {
        throw new DOMException("full", "QuotaExceededError");
      },
    });
    expect(writeText("a", "b")).toBe(false);
    expect(readText("a")).toBe(null);
  });
});
