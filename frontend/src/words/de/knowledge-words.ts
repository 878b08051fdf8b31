/** German words about knowledge. */

import type { knowledgeWords as english } from "../../knowledge-words";
import type { Twin } from "../twin";
import { counted } from "./words";

export const knowledgeWords: Twin<typeof english> = {
  section: "Wissen",
  lead: "Ordner und Dateien, die Sitzungen durchsuchen können. Antworten nennen die Datei und die Stelle.",
  add: "Wissen hinzufügen",
  edit: "Bearbeiten",
  name: "Name",
  what: "Was es ist",
  folder: "Ein Ordner",
  uploads: "Hochgeladene Dateien",
  chooseFolder: "Ordner wählen",
  folderLead: "Der Ordner, dessen Dateien durchsucht werden können. Sie werden gelesen und nie geändert.",
  all: "Alle Sitzungen",
  own: "Meine eigenen Worte",
  ownHelp: "Der Text zählt, als hättest du ihn geschrieben. Lass es aus, wenn andere dort Dateien ablegen können: Was sie schreiben, könnte dann den Agenten lenken.",
  profiles: "Profile",
  sessions: "Sitzungen",
  addSession: "Sitzung hinzufügen",
  nobody: "Noch kann keine Sitzung es durchsuchen.",
  none: "Noch kein Wissen",
  noneHelp: "Wähle einen Ordner mit deinen Dokumenten oder lade welche hoch.",
  make: "Anlegen",
  addFiles: "Dateien hinzufügen",
  removeFile: (name) => `${name} entfernen`,
  removeSession: (name) => `${name} nicht mehr darin suchen lassen`,
  remove: (name) => `${name} löschen`,
  removed: "Gelöscht",
  removeSure: "Mit allen hochgeladenen Dateien löschen?",
  removeFolderSure: "Löschen? Der Ordner und seine Dateien bleiben.",
  yes: "Löschen",
  state: (files, sections) => `${counted(files, "Datei", "Dateien")}, ${counted(sections, "Abschnitt", "Abschnitte")}`,
  indexedAt: (when) => `Stand: ${when}`,
  indexing: (waiting) => (waiting ? `wird gelesen, noch ${waiting.toLocaleString("de")}` : "wird gelesen"),
  notYet: "noch nicht gelesen",
  elsewhere: (machine) => `Der Ordner liegt auf der Maschine ${machine}. Sitzungen können ihn dort durchsuchen.`,
  errors: (count) => (count === 1 ? "1 Datei war nicht lesbar" : `${count} Dateien waren nicht lesbar`),
  uploading: (name) => `${name} wird hochgeladen`,
  usedBy: (names) => `Benutzt von ${names}`,
};
