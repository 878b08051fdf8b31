import { describe, expect, it } from "vitest";
import { spanOf, towards, guessPx } from "../src/app/window";
import { calling, groups, hear, isNewer, put, emptyList } from "../src/state/list";
import type { Session } from "../src/api/types";
import { nameOf } from "../src/state/servers";
import { argumentsFrom, diffsOf, fieldsOf } from "../src/state/tools";
import { readDiff } from "../src/text/diff";
import { failureText } from "../src/text/failure";
import { count, duration, limitOf, money, stamp, when } from "../src/text/format";
import { excerpt } from "../src/text/hits";
import { readRoute, writeRoute } from "../src/app/route";

const nb = "\u00a0";

describe("numbers", () => {
  it("are short", () => {
    expect([20, 400, 1000, 48_000, 72_000, 3_600_000, 3_720_000].map(duration)).toEqual([`0.02${nb}s`, `0.4${nb}s`, `1${nb}s`, `48${nb}s`, `1${nb}min 12${nb}s`, `1${nb}h`, `1${nb}h 2${nb}min`]);
    expect([7, 2100, 38_000, 148_000, 1_200_000].map(count)).toEqual(["7", "2.1k", "38k", "148k", "1.2M"]);
    expect([0.004, 0.14, 12].map(money)).toEqual(["$0.004", "$0.14", "$12.00"]);
  });
  it("tell days near and far", () => {
    const now = new Date(2026, 10, 14, 12).getTime();
    expect(when(new Date(2026, 10, 14, 9, 13).getTime(), now)).toBe("today 09:13");
    expect(when(new Date(2026, 10, 10, 22, 10).getTime(), now)).toBe("Tue 22:10");
    expect(when(new Date(2026, 10, 2).getTime(), now)).toBe("2 Nov");
    const times = [new Date(2026, 10, 14, 9, 13), new Date(2026, 10, 10, 22, 10), new Date(2026, 10, 2, 8), new Date(2023, 10, 2, 8)];
    expect(times.map((at) => stamp(at.getTime(), now))).toEqual(["09:13", "Tue 22:10", "2 Nov 08:00", "2 Nov 2023 08:00"]);
  });
});

describe("a diff", () => {
  const text = "--- a/x.sh\n+++ b/x.sh\n@@ -22,3 +22,3 @@\n keep\n-restic backup /srv --tag nightly\n+restic backup /srv --tag nightly --retry-lock 30m\n end\n";
  it("has its lines, numbers and the words that changed", () => {
    const diff = readDiff(text);
    expect([diff.path, diff.added, diff.removed]).toEqual(["x.sh", 1, 1]);
    expect(diff.lines.map((line) => [line.kind, line.number])).toEqual([["same", 22], ["del", 23], ["add", 23], ["same", 24]]);
    expect(diff.lines[2]!.pieces.filter((piece) => piece.isMarked).map((piece) => piece.text)).toEqual(["--retry-lock 30m"]);
  });
  it("is read from what the file tools send", () => {
    const shown = { kind: "diff", path: "a.txt", added: 1, removed: 1, hunks: [{ old: 1, new: 1, lines: [{ sign: "-", old: 1, text: "one" }, { sign: "+", new: 1, text: "two" }] }] };
    expect(diffsOf({ kind: "diffs", files: [shown, shown] })).toHaveLength(2);
    expect(diffsOf(shown)[0]!.lines.map((line) => line.kind)).toEqual(["del", "add"]);
    expect(diffsOf({ kind: "terminal", exit: 1 })).toEqual([]);
  });
});

describe("the list", () => {
  const row = (id: string, more: Partial<Session> = {}): Session => ({ id, owner: "o", version: 1, position: 1, created_at: 0, updated_at: 0, ...more });
  const names = { pinned: "pinned", today: "today", yesterday: "yesterday", lastDays: "week", month: () => "month" };

  it("never replaces a newer row by an older one", () => {
    expect(isNewer(row("a", { position: 2 }), row("a", { position: 3 }))).toBe(false);
    const list = put(put(emptyList, [row("a", { title: "new", version: 2 })]), [row("a", { title: "old" })]);
    expect(list.rows.get("a")!.title).toBe("new");
  });
  it("groups by what a person looks for", () => {
    const now = new Date(2026, 10, 14, 12).getTime();
    const day = 86_400_000;
    const rows = [row("today", { updated_at: now - 1000 }), row("ask", { updated_at: now - 9 * day, asks: 1 }), row("pin", { pinned: true }), row("yesterday", { updated_at: now - day }), row("week", { updated_at: now - 5 * day }), row("old", { updated_at: now - 40 * day })];
    expect(groups(rows, now, names).map((group) => [group.label, group.rows.map((item) => item.id)])).toEqual([
      ["pinned", ["pin"]], ["today", ["today"]], ["yesterday", ["yesterday"]], ["week", ["week"]], ["month", ["ask", "old"]],
    ]);
  });
  it("calls when a session ends its work or begins to wait for the user, and only then", () => {
    const busy = row("a", { active_turn: "trn_1" });
    const called = (before: Session, now: Session): string[] => calling(put(emptyList, [before]), put(emptyList, [now])).map((one) => one.id);
    expect(called(busy, row("a", { position: 2 }))).toEqual(["a"]);
    expect(called(busy, row("a", { active_turn: "trn_1", asks: 1, position: 2 }))).toEqual(["a"]);
    expect(called(row("a", { active_turn: "trn_1", asks: 1 }), row("a", { active_turn: "trn_1", asks: 2, position: 2 }))).toEqual([]);
    expect(called(busy, row("a", { active_turn: "trn_1", position: 2 }))).toEqual([]);
    expect(called(busy, row("a", { queued: 1, position: 2 })), "more of it is to come").toEqual([]);
    expect(called(row("a"), row("a", { title: "x", position: 2 }))).toEqual([]);
    expect(calling(emptyList, put(emptyList, [row("a", { asks: 1 })])), "what was so before it was seen").toEqual([]);
  });
  it("hears what happened", () => {
    const list = hear(emptyList, { kind: "sessions.snapshot", sessions: [row("a")] });
    expect(hear(list, { kind: "session.renamed", session_id: "a", session: row("a", { title: "x", version: 2 }) }).rows.get("a")!.title).toBe("x");
    expect(hear(list, { kind: "session.deleted", session_id: "a" }).rows.size).toBe(0);
    expect(hear(list, { kind: "stream.end" })).toBe(list);
  });
});

describe("small things", () => {
  it("an excerpt begins at most 24 characters before its hit", () => {
    const text = `${"x".repeat(100)} here is the hit and more`;
    const at = text.indexOf("hit");
    const pieces = excerpt(text, [[at, at + 3]]);
    expect(pieces[0]!.text.length).toBeLessThanOrEqual(25);
    expect(pieces[1]).toEqual({ text: "hit", isMarked: true });
  });
  it("an excerpt reads as the message is drawn, and its hits stay marked", () => {
    const shown = (text: string, hit: string) => {
      const at = text.indexOf(hit);
      return excerpt(text, [[at, at + hit.length]]).map((piece) => (piece.isMarked ? `{${piece.text}}` : piece.text)).join("");
    };
    expect(shown("# Plan  Here is **bold zebra** and `code`.", "zebra")).toBe("Plan Here is bold {zebra} and code.");
    expect(shown("| a | b | |---|---| | 1 | zebra | ", "zebra")).toBe("a b 1 {zebra}");
    expect(shown("| a | b | | --- | :-: | | 1 | zebra", "zebra")).toBe("a b 1 {zebra}");
    expect(shown("- see [the zebra](https://example.com/a) - a *two*", "zebra")).toBe("see the {zebra} - a two");
    expect(shown("```python print('zebra') ``` ", "zebra")).toBe("print('{zebra}')");
    expect(shown("cat a|grep b || zebra --- --all -- #5", "zebra")).toBe("cat a|grep b || {zebra} --all -- #5");
    expect(shown("2 * 3 * 4 and 2*3*4, snake_case_name, zebra", "zebra")).toBe("…2*3*4, snake_case_name, {zebra}");
    expect(shown("what does `**kwargs` mean?", "**kwargs"), "what was looked for").toBe("what does {**kwargs} mean?");
  });
  it("a failure says what the provider said, once", () => {
    const failure = (code: string, message: string, hint = "") => failureText({ code, message, hint });
    expect(failure("model_overloaded", "openai:gpt answered 500: Internal server error")).toEqual({
      head: "The model returned an error (500).",
      text: "Internal server error. Your message is saved.",
    });
    expect(failure("model_overloaded", "openai:gpt answered 502").text).toBe("Your message is saved.");
    expect(failure("model_silent", "openai:gpt returned an empty answer.", "Retry, or choose another model.")).toEqual({
      head: "The model returned an empty answer.",
      text: "Retry, or choose another model. Your message is saved.",
    });
    // A model that cannot be reached has returned nothing, not even an error.
    expect(failure("model_dropped", "openai:gpt cannot be reached.", "Check the connection")).toEqual({
      head: "The answer failed.",
      text: "openai:gpt cannot be reached. Check the connection. Your message is saved.",
    });
    expect(failureText(null).head).toBe("The answer failed.");
  });
  it("routes read back as they were written", () => {
    for (const hash of ["#/", "#/s/ses_1", "#/s/ses_1/msg_2-0001", "#/settings/memory"]) expect(writeRoute(readRoute(hash))).toBe(hash);
  });
  it("only turns near the view are drawn, and the room of the others is kept", () => {
    const ids = Array.from({ length: 5000 }, (_, index) => `t${index}`);
    const heights = new Map(ids.map((id) => [id, 100]));
    const span = spanOf(ids, heights, 250_000, 800);
    expect(span.end - span.start).toBeLessThan(40);
    expect(span.above + span.below + 100 * (span.end - span.start)).toBe(500_000);
    const end = spanOf(ids, new Map(), ids.length * guessPx, 800);
    expect(end.end).toBe(5000);
  });
  it("what can be seen is drawn at once, its surroundings a turn at a time", () => {
    const ids = Array.from({ length: 1000 }, (_, index) => `t${index}`);
    const heights = new Map(ids.map((id) => [id, 100]));
    let { span, isThere } = towards({ start: 0, end: 5, above: 0, below: 0 }, ids, heights, 50_000, 800, 0);
    expect(isThere).toBe(false);
    expect(span.start).toBeLessThanOrEqual(500);
    expect(span.end).toBeGreaterThanOrEqual(508);
    expect(span.end - span.start).toBeLessThan(16);
    let steps = 0;
    while (!isThere) {
      const next = towards(span, ids, heights, 50_000, 800, 1);
      expect(next.span.start).toBeGreaterThanOrEqual(span.start - 1);
      expect(next.span.end).toBeLessThanOrEqual(span.end + 1);
      expect(next.span.above + next.span.below + 100 * (next.span.end - next.span.start)).toBe(100_000);
      ({ span, isThere } = next);
      steps += 1;
      expect(steps).toBeLessThan(40);
    }
    expect(span).toEqual(spanOf(ids, heights, 50_000, 800));
  });
});

describe("the arguments of a call, edited by a person", () => {
  it("gives back what it was given", () => {
    const given = '{"command":"echo \\"a\\"\\nb","timeout_s":20,"env":{"A":"1"}}';
    const fields = fieldsOf(given);
    expect(fields.map((field) => field.text)).toEqual(['echo "a"\nb', "20", '{\n  "A": "1"\n}']);
    expect(argumentsFrom(fields)).toEqual({ given });
  });
  it("keeps text as text, even where it looks like a number", () => {
    const [field] = fieldsOf('{"code":"x"}');
    expect(argumentsFrom([{ ...field!, text: "12" }])).toEqual({ given: '{"code":"12"}' });
  });
  it("names the field that is no JSON", () => {
    const [, seconds] = fieldsOf('{"command":"ls","timeout_s":20}');
    expect(argumentsFrom([{ ...seconds!, text: "soon" }, seconds!])).toEqual({ wrong: "timeout_s" });
  });
  it("edits what the model wrote as it is where that is no object", () => {
    expect(argumentsFrom(fieldsOf("{broken"))).toEqual({ given: "{broken" });
  });
});

describe("the name of a server of one's own", () => {
  const none = (): boolean => false;
  it("is its host, and a number gets a word before it", () => {
    expect(nameOf("http://nas-01:11434/v1", [], none)).toBe("nas-01");
    expect(nameOf("https://models.example.org/v1", [], none)).toBe("models");
    expect(nameOf("http://192.168.1.7:8000/v1", [], none)).toBe("server-192-168-1-7");
    expect(nameOf("http://127.0.0.1:8000/v1", [], none)).toBe("localhost");
    expect(nameOf("http://[fd00::7]:8000/v1", [], none)).toBe("server-fd00-7");
  });
  it("has the port where another one there has the name", () => {
    const known = [{ name: "nas-01", base_url: "http://nas-01:11434/v1" }];
    expect(nameOf("http://nas-01:8000/v1", known, none)).toBe("nas-01-8000");
    expect(nameOf("http://nas-01:11434", known, none), "the same one again").toBe("nas-01");
    expect(nameOf("http://nas-01:8000/b/v1", [...known, { name: "nas-01-8000", base_url: "http://nas-01:8000/v1" }], none)).toBe("nas-01-8000-2");
    expect(nameOf("http://openai:8000/v1", [], (name) => name === "openai")).toBe("openai-8000");
  });
  it("is nothing while there is no address", () => {
    expect(nameOf("nas", [], none)).toBe("");
  });
});

describe("a limit as it was typed", () => {
  it("is a number above 0, a whole one where parts make no sense, or none", () => {
    expect([" 2.5 ", "", "0", "-3", "many", "Infinity"].map((typed) => limitOf(typed, false))).toEqual([2.5, null, undefined, undefined, undefined, undefined]);
    expect(["20", "1.5"].map((typed) => limitOf(typed, true))).toEqual([20, undefined]);
  });
});
