/** Reads a unified diff into lines for the page, with the changed words of paired lines marked. */

export interface DiffLine {
  kind: "same" | "add" | "del" | "gap";
  number: number | null;
  /** Pieces of the line; the marked ones are what changed in it. */
  pieces: { text: string; isMarked: boolean }[];
}

export interface FileDiff {
  path: string;
  added: number;
  removed: number;
  lines: DiffLine[];
}

export function readDiff(text: string, path = ""): FileDiff {
  const lines: DiffLine[] = [];
  let oldNumber = 0;
  let newNumber = 0;
  let inHunk = false;
  let found = path;
  for (const line of text.split("\n")) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
    if (hunk) {
      if (inHunk) lines.push({ kind: "gap", number: null, pieces: [] });
      oldNumber = Number(hunk[1]);
      newNumber = Number(hunk[2]);
      inHunk = true;
    } else if (!inHunk) {
      const named = /^\+\+\+ (?:b\/)?(.+?)(?:\t.*)?$/.exec(line);
      if (named && !found && named[1] !== "/dev/null") found = named[1]!;
    } else if (line.startsWith("+")) {
      lines.push(plain("add", newNumber++, line.slice(1)));
    } else if (line.startsWith("-")) {
      lines.push(plain("del", oldNumber++, line.slice(1)));
    } else if (line.startsWith(" ") || line === "") {
      lines.push(plain("same", newNumber, line.slice(1)));
      oldNumber += 1;
      newNumber += 1;
    }
  }
  while (lines.length && lines[lines.length - 1]!.kind === "same" && lines[lines.length - 1]!.pieces[0]?.text === "" && text.endsWith("\n")) {
    lines.pop();
  }
  return {
    path: found,
    added: lines.filter((line) => line.kind === "add").length,
    removed: lines.filter((line) => line.kind === "del").length,
    lines: markChanges(lines),
  };
}

function plain(kind: DiffLine["kind"], number: number, text: string): DiffLine {
  return { kind, number, pieces: [{ text, isMarked: false }] };
}

/** Pair each run of removed lines with the run of added lines after it, and mark what differs. */
export function markChanges(lines: DiffLine[]): DiffLine[] {
  const out = [...lines];
  let index = 0;
  while (index < out.length) {
    if (out[index]!.kind !== "del") {
      index += 1;
      continue;
    }
    let firstAdd = index;
    while (out[firstAdd]?.kind === "del") firstAdd += 1;
    let end = firstAdd;
    while (out[end]?.kind === "add") end += 1;
    const pairs = Math.min(firstAdd - index, end - firstAdd);
    for (let pair = 0; pair < pairs; pair += 1) {
      const left = out[index + pair]!;
      const right = out[firstAdd + pair]!;
      const [before, after] = mark(left.pieces[0]!.text, right.pieces[0]!.text);
      out[index + pair] = { ...left, pieces: before };
      out[firstAdd + pair] = { ...right, pieces: after };
    }
    index = end;
  }
  return out;
}

type Pieces = DiffLine["pieces"];

/** The common beginning and end of two lines are plain; what lies between changed. */
function mark(left: string, right: string): [Pieces, Pieces] {
  let head = 0;
  while (head < left.length && head < right.length && left[head] === right[head]) head += 1;
  let tail = 0;
  while (
    tail < left.length - head &&
    tail < right.length - head &&
    left[left.length - 1 - tail] === right[right.length - 1 - tail]
  ) {
    tail += 1;
  }
  // Whole words: half a marked word is harder to read than the word.
  while (head > 0 && isWord(left, head) && isWord(right, head)) head -= 1;
  while (tail > 0 && isWord(left, left.length - tail) && isWord(right, right.length - tail)) tail -= 1;
  // Lines with little in common are simply different: marking nearly all of them says nothing.
  if (head + tail < Math.max(left.length, right.length) * 0.3) return [whole(left), whole(right)];
  return [split(left, head, tail), split(right, head, tail)];
}

/** Is this place inside a word of the line? */
function isWord(text: string, at: number): boolean {
  return /\S/.test(text[at - 1] ?? " ") && /\S/.test(text[at] ?? " ");
}

function whole(text: string): Pieces {
  return [{ text, isMarked: false }];
}

function split(text: string, head: number, tail: number): Pieces {
  while (head < text.length - tail && text[head] === " ") head += 1;
  return [
    { text: text.slice(0, head), isMarked: false },
    { text: text.slice(head, text.length - tail), isMarked: true },
    { text: text.slice(text.length - tail), isMarked: false },
  ].filter((piece) => piece.text);
}
