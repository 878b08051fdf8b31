/** German words for characters that would not be seen. */

import type { exactWords as english } from "../../exact-words";
import type { Twin } from "../twin";

export const exactWords: Twin<typeof english> = {
  blankLines: (count) => `${count.toLocaleString("de")} leere Zeilen`,
  spaces: (count) => `${count.toLocaleString("de")} Leerzeichen`,
};
