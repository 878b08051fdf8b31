/** German words of what is done with several sessions. */

import type { pickedWords as english } from "../../picked-words";
import type { Twin } from "../twin";
import { counted } from "./words";

const sessions = (count: number): string => counted(count, "Sitzung", "Sitzungen");

export const pickedWords: Twin<typeof english> = {
  selected: (count) => `${count} ausgewählt`,
  selectionBar: "Ausgewählte Sitzungen",
  archive: "Archivieren",
  unarchive: "Aus dem Archiv holen",
  delete: "Löschen",
  tag: "Schlagwort",
  tagName: "Neues Schlagwort",
  addTag: "Hinzufügen",
  exportAs: "Exportieren",
  exportForms: { md: "Markdown", html: "HTML", json: "JSON" },
  endSelection: "Fertig",
  archivedMany: (count) => `${sessions(count)} archiviert`,
  unarchivedMany: (count) => `${sessions(count)} aus dem Archiv geholt`,
  deletedMany: (count) => `${sessions(count)} gelöscht`,
  taggedMany: (count, tag) => `${sessions(count)} mit ${tag} versehen`,
  notAll: (failed, why) => `${failed === 1 ? "1 Sitzung wurde" : `${failed} Sitzungen wurden`} nicht geändert. ${why}`,
};
