import { describe, expect, it } from "vitest";
import type { FileChange, WorkspaceFile } from "../src/api/types";
import { marksOf, netChanges, rowsOf, rowsOfChanges, step } from "../src/state/tree";
import { readCsv } from "../src/text/csv";
import { folderOf, kindOf, nameOf, workspacePath } from "../src/text/file-kinds";
import { withFiles, type FilePlace } from "../src/text/file-links";
import { lexer } from "../src/text/grammar";
import { render } from "../src/text/render";

function entry(path: string, kind = "file"): WorkspaceFile {
  return { path, name: nameOf(path), kind, size: 10, modified_at: 0 };
}

const listed = new Map([
  ["", [entry("ops", "folder"), entry("report", "folder"), entry("README.md")]],
  ["ops", [entry("ops/old", "folder"), entry("ops/backup.sh")]],
  ["ops/old", [entry("ops/old/prune.sh")]],
]);
const none = marksOf([], []);

describe("the tree of files", () => {
  it("shows what is in open folders, each below its folder", () => {
    const rows = rowsOf(listed, new Set(["ops", "report"]), none);
    expect(rows.map((row) => [row.path, row.depth, row.isOpen])).toEqual([
      ["ops", 0, true],
      ["ops/old", 1, false],
      ["ops/backup.sh", 1, false],
      ["report", 0, true],
      ["README.md", 0, false],
    ]);
  });

  it("marks what changed in this turn, and else what changed in the session", () => {
    const early: FileChange = { path: "ops/backup.sh", what: "added" };
    const late: FileChange = { path: "ops/backup.sh", what: "changed", added: 6, removed: 2 };
    const readme: FileChange = { path: "README.md", what: "changed" };
    const rows = rowsOf(listed, new Set(["ops"]), marksOf([early, readme], [late]));
    const marks = Object.fromEntries(rows.map((row) => [row.path, row.mark]));
    expect(marks["ops/backup.sh"]).toEqual({ change: late, isTurn: true });
    expect(marks["README.md"]).toEqual({ change: readme, isTurn: false });
    expect(marks["ops"]).toBeNull();
  });

  it("draws changes with the folders on the way, also where the file is gone", () => {
    const changes: FileChange[] = [
      { path: "b/deep/x.txt", what: "deleted" },
      { path: "a.txt", what: "added", size: 3 },
      { path: "B.txt", what: "added", size: 3 },
    ];
    const rows = rowsOfChanges(changes, new Set(), marksOf([], changes));
    expect(rows.map((row) => [row.name, row.depth])).toEqual([["b", 0], ["deep", 1], ["x.txt", 2], ["a.txt", 0], ["B.txt", 0]]);
    expect(rowsOfChanges(changes, new Set(["b"]), none).map((row) => row.path)).toEqual(["b", "a.txt", "B.txt"]);
  });

  it("is walked with the arrow keys", () => {
    const rows = rowsOf(listed, new Set(["ops"]), none);
    expect(step(rows, 0, "ArrowDown")).toEqual({ to: 1 });
    expect(step(rows, 0, "ArrowUp")).toEqual({ to: 0 });
    expect(step(rows, 0, "End")).toEqual({ to: 4 });
    expect(step(rows, 0, "ArrowRight")).toEqual({ to: 1 });
    expect(step(rows, 1, "ArrowRight")).toEqual({ open: "ops/old" });
    expect(step(rows, 2, "ArrowLeft")).toEqual({ to: 0 });
    expect(step(rows, 0, "ArrowLeft")).toEqual({ close: "ops" });
    expect(step(rows, 0, "x")).toBeNull();
    expect(step([], 0, "ArrowDown")).toBeNull();
  });
});

describe("comma-separated values", () => {
  it("are read with quotes, line ends and empty fields", () => {
    const csv = readCsv('\ufeffweek,folder,gb\r\n34,"photos, old",512\r\n35,"say ""yes""\nagain",\r\n\r\n');
    expect(csv.head).toEqual(["week", "folder", "gb"]);
    expect(csv.rows).toEqual([["34", "photos, old", "512"], ["35", 'say "yes"\nagain', ""]]);
    expect(csv.isCut).toBe(false);
  });

  it("have the separator that the first line uses most", () => {
    expect(readCsv("a;b;c\n1,5;2;3").rows).toEqual([["1,5", "2", "3"]]);
    expect(readCsv("a\tb\n1\t2").rows).toEqual([["1", "2"]]);
    expect(readCsv("one\ntwo").rows).toEqual([["two"]]);
  });

  it("are cut where there is too much of them", () => {
    const many = Array.from({ length: 50 }, (_, index) => `${index},x`).join("\n");
    const csv = readCsv(`n,x\n${many}`, true, 10);
    expect(csv.rows).toHaveLength(10);
    expect(csv.isCut).toBe(true);
    // The end of a text that was cut may be half a line.
    expect(readCsv("a,b\n1,2\n3,", false).rows).toEqual([["1", "2"]]);
    expect(readCsv("a,b,c\n1,2,3", true, 10, 2).rows).toEqual([["1", "2"]]);
  });

  it("survive what is no table", () => {
    expect(readCsv("").head).toEqual([]);
    expect(readCsv('"never closed, a\nb').head).toEqual(["never closed, a\nb"]);
    expect(readCsv('"a"b,c').head).toEqual(["ab", "c"]);
  });
});

describe("the kind of a file", () => {
  it("follows from its name", () => {
    expect(kindOf("report/disk-use.PNG")).toMatchObject({ look: "image", word: "Image", icon: "image" });
    expect(kindOf("data.csv")).toMatchObject({ look: "table", word: "Table" });
    expect(kindOf("ops/backup.sh")).toMatchObject({ look: "text", word: "Script", icon: "file-code", lang: "sh" });
    expect(kindOf("Makefile")).toMatchObject({ look: "text", word: "Code", lang: "makefile" });
    expect(kindOf("a.tar.gz")).toMatchObject({ look: "none", word: "File" });
    expect(kindOf("notes")).toMatchObject({ look: "text", word: "Text" });
  });

  it("and its folder from its path", () => {
    expect([folderOf("a/b/c.txt"), folderOf("c.txt"), nameOf("a/b/c.txt")]).toEqual(["a/b", "", "c.txt"]);
  });
});

describe("what a turn did to files", () => {
  const added = (path: string): FileChange => ({ path, what: "added", size: 1 });

  it("is the net of its steps", () => {
    let files = netChanges(null, [added("a"), added("b"), { path: "c", what: "changed" }, { path: "d", what: "deleted" }], 4);
    files = netChanges(files, [{ path: "a", what: "changed", size: 5 }, { path: "b", what: "deleted" }, { path: "c", what: "deleted" }, added("d")], 4);
    expect(files).toEqual({
      changes: [{ path: "a", what: "added", size: 5 }, { path: "c", what: "deleted" }, { path: "d", what: "changed", size: 1 }],
      total: 3,
    });
  });

  it("counts what is not listed", () => {
    expect(netChanges(null, [added("a")], 30).total).toBe(30);
  });
});

describe("files that an answer names", () => {
  const opened: string[] = [];
  const place: FilePlace = { folder: "", address: (path) => `/files?path=${encodeURIComponent(path)}&view=true`, open: (path) => opened.push(path) };
  const drawn = (text: string, at: FilePlace | null = place): HTMLElement => {
    const node = document.createElement("div");
    node.innerHTML = withFiles(lexer(text).map(render).join(""), at);
    return node;
  };

  it("are shown and linked, wherever their path is written as one", () => {
    expect(drawn("![Chart](report/disk%20use.png)").querySelector("img")?.getAttribute("src")).toBe("/files?path=report%2Fdisk%20use.png&view=true");
    const link = drawn("[the script](./ops/backup.sh)").querySelector("a")!;
    expect(link.getAttribute("href")).toBe("/files?path=ops%2Fbackup.sh&view=true");
    expect(link.textContent).toBe("the script");
    expect(drawn("[x](../a.md)", { ...place, folder: "docs/deep" }).querySelector("a")?.getAttribute("href")).toContain("docs%2Fa.md");
  });

  it("are their names where there is no workspace", () => {
    expect(drawn("![Chart](a.png) and [b](b.md)", null).innerHTML).not.toMatch(/<img|href/);
    expect(drawn("![Chart](a.png) and [b](b.md)", null).textContent?.trim()).toBe("Chart and b");
  });

  it("are told from hosts that are written without a scheme", () => {
    const link = drawn("[x](example.com/page)").querySelector("a")!;
    expect([link.getAttribute("href"), link.hasAttribute("data-file")]).toEqual(["https://example.com/page", false]);
    expect(drawn("![x](www.example.museum/a.png)").querySelector("img")).toBeNull();
    for (const host of ["example.com", "docs.example.org:8080/a", "www.example.museum", "example.co.uk#part"]) expect(workspacePath(host)).toBeNull();
    for (const path of ["notes.md", "main.py", "run.sh", "a.b.rs", "Makefile.in", "./example.com/a", "data.v2/com", "com"]) expect(workspacePath(path)).not.toBeNull();
  });

  it("never lead out of the workspace or elsewhere", () => {
    expect(workspacePath("../secret")).toBeNull();
    expect(workspacePath("a/../../b")).toBeNull();
    expect(workspacePath("/etc/passwd")).toBeNull();
    expect(workspacePath("//host/x")).toBeNull();
    expect(workspacePath("javascript:alert(1)")).toBeNull();
    expect(workspacePath("https://example.org/a.png")).toBeNull();
    expect(workspacePath("#part")).toBeNull();
    expect(workspacePath("%2e%2e/secret")).toBeNull();
    expect(workspacePath("api/files/fil_1")).toBeNull();
    expect(workspacePath("100%.txt")).toBe("100%.txt");
    const hostile = drawn('<img data-file="a.png" src="https://example.org/x.png"><a data-file="javascript:1" href="javascript:1">x</a><p data-file="a">y</p>');
    expect(hostile.querySelector("img")?.getAttribute("src") ?? "").not.toContain("example.org");
    expect(hostile.querySelector("a")?.hasAttribute("data-file")).toBe(false);
    expect(hostile.innerHTML).not.toContain("javascript:");
    expect(drawn('![x"onerror="alert(1)](a"b.png)').querySelector("[onerror]")).toBeNull();
  });
});
