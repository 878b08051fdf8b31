/** German words of reading aloud. */

import type { aloudWords as english } from "../../aloud-words";
import type { Twin } from "../twin";

export const aloudWords: Twin<typeof english> = {
  readAloud: "Vorlesen",
  stopReading: "Vorlesen beenden",
  codeLeftOut: "Code wird ausgelassen.",
};
