/** Reads comma-separated values for a table: quoted fields, any line end, and the separator that the file uses. */

export interface Csv {
  head: string[];
  rows: string[][];
  /** There are more rows or columns than these. */
  isCut: boolean;
}

const separators = [",", ";", "\t"];

/** `isWhole` false: the text was cut, so its last line is left out. */
export function readCsv(text: string, isWhole = true, rowsMax = 500, columnsMax = 60): Csv {
  const clean = text.startsWith("\ufeff") ? text.slice(1) : text;
  const separator = separatorOf(clean);
  const all: string[][] = [];
  let row: string[] = [];
  let at = 0;
  let isCut = false;
  while (at < clean.length) {
    if (all.length > rowsMax) {
      isCut = true;
      break;
    }
    const field = readField(clean, at, separator);
    row.push(field.text);
    at = field.end;
    if (clean[at] === separator) {
      at += 1;
      // A line that ends with a separator has one more field, which is empty.
      if (at === clean.length || clean[at] === "\n" || clean[at] === "\r") row.push("");
      else continue;
    }
    const isLast = at >= clean.length;
    if (!(isLast && !isWhole) && !(row.length === 1 && row[0] === "")) all.push(row);
    row = [];
    at += clean[at] === "\r" && clean[at + 1] === "\n" ? 2 : 1;
  }
  const wide = all.some((line) => line.length > columnsMax);
  const shown = wide ? all.map((line) => line.slice(0, columnsMax)) : all;
  return { head: shown[0] ?? [], rows: shown.slice(1, rowsMax + 1), isCut: isCut || wide || !isWhole };
}

function readField(text: string, start: number, separator: string): { text: string; end: number } {
  if (text[start] !== '"') {
    let end = start;
    while (end < text.length && text[end] !== separator && text[end] !== "\n" && text[end] !== "\r") end += 1;
    return { text: text.slice(start, end), end };
  }
  let found = "";
  let at = start + 1;
  while (at < text.length) {
    const quote = text.indexOf('"', at);
    if (quote < 0) return { text: found + text.slice(at), end: text.length };
    found += text.slice(at, quote);
    at = quote + 1;
    if (text[at] !== '"') break;
    found += '"';
    at += 1;
  }
  // What follows the closing quote belongs to the field all the same: nothing is dropped.
  const rest = readField(text, at, separator);
  return { text: found + rest.text, end: rest.end };
}

/** The one that the first line has most of. */
function separatorOf(text: string): string {
  const end = text.search(/[\r\n]/);
  const line = end < 0 ? text : text.slice(0, end);
  const counted = separators.map((one) => ({ one, count: line.split(one).length }));
  return counted.reduce((best, next) => (next.count > best.count ? next : best)).one;
}
