/** Files of the workspace that Markdown names: their addresses, where the text is drawn. */

import { escape } from "./grammar";
import { workspacePath } from "./file-kinds";

export interface FilePlace {
  /** The folder that paths begin at. */
  folder: string;
  /** Where the file is shown from; `isPresent`: as it is now. */
  address: (path: string, isPresent?: boolean) => string;
  open: (path: string) => void;
}

const named = /<(a|img) data-file="([^"]*)"/g;
const picture = /<img data-file="[^"]*" alt="([^"]*)"[^>]*>/g;

/** The cleaned HTML with addresses filled in. Without a place, a picture is its name and a link is its text. */
export function withFiles(html: string, place: FilePlace | null): string {
  if (!html.includes(" data-file=")) return html;
  if (!place) return html.replace(picture, "$1");
  return html.replace(named, (whole, tag: string, address: string) => {
    const path = workspacePath(unescape(address), place.folder);
    return path ? `${whole} ${tag === "a" ? "href" : "src"}="${escape(place.address(path))}"` : whole;
  });
}

function unescape(text: string): string {
  return text
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&quot;", '"')
    .replaceAll("&#39;", "'")
    .replaceAll("&nbsp;", "\u00a0")
    .replaceAll("&amp;", "&");
}
