/** German words of the filter of the list of sessions. */

import type { findWords as english } from "../../find-words";
import type { Twin } from "../twin";

export const findWords: Twin<typeof english> = {
  filter: "Sitzungen filtern oder auswählen",
  shownTag: (tag) => `Schlagwort ${tag}`,
  showAll: "Alle Sitzungen anzeigen",
  nothing: "Hier gibt es keine Sitzungen",
  archive: "Archiv",
  leaveArchive: "Archiv verlassen",
  archiveEmpty: "Nichts ist archiviert",
};
