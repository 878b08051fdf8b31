/** German words of moves through the history. */

import type { moveWords as english } from "../../move-words";
import type { Twin } from "../twin";
import { counted } from "./words";

export const moveWords: Twin<typeof english> = {
  moves: {
    undo: {
      title: (turn) => (turn ? `Runde ${turn} rückgängig machen?` : "Diese Runde rückgängig machen?"),
      lead: (turn) =>
        `Unterhaltung und Dateien gehen zurück ${!turn ? "auf den Stand vor dieser Runde" : turn > 1 ? `an das Ende von Runde ${turn - 1}` : "an den Anfang"}. Du kannst das später wiederherstellen.`,
      restore: (count) => `Rückgängig machen und ${counted(count, "Datei", "Dateien")} zurücksetzen`,
      keepAll: "Rückgängig machen, Dateien behalten",
      conversation: "Nur die Unterhaltung rückgängig machen",
    },
    redo: {
      title: () => "Diese Runde wiederherstellen?",
      lead: () => "Unterhaltung und Dateien gehen vor an das Ende dieser Runde. Du kannst das später rückgängig machen.",
      restore: (count) => `Runde und ${counted(count, "Datei", "Dateien")} wiederherstellen`,
      keepAll: "Wiederherstellen, Dateien behalten",
      conversation: "Nur die Unterhaltung wiederherstellen",
    },
    select: {
      title: () => "Die andere Antwort anzeigen?",
      lead: () => "Unterhaltung und Dateien gehen auf den Stand nach jener Antwort. Du kannst später zurück.",
      restore: (count) => `Anzeigen und ${counted(count, "Datei", "Dateien")} zurücksetzen`,
      keepAll: "Anzeigen, Dateien behalten",
      conversation: "Nur die Antwort anzeigen",
    },
    retry: {
      title: () => "Diese Antwort neu versuchen?",
      lead: () => "Dateien gehen auf den Stand vor dieser Antwort zurück. Die Antwort selbst bleibt erhalten.",
      restore: (count) => `${counted(count, "Datei", "Dateien")} zurücksetzen und neu versuchen`,
      keepAll: "Neu versuchen, Dateien behalten",
      conversation: "Mit den Dateien von jetzt neu versuchen",
    },
    edit: {
      title: () => "Die bearbeitete Nachricht senden?",
      lead: () => "Dateien gehen auf den Stand vor der alten Nachricht zurück. Deren Antwort bleibt erhalten.",
      restore: (count) => `${counted(count, "Datei", "Dateien")} zurücksetzen und senden`,
      keepAll: "Senden, Dateien behalten",
      conversation: "Mit den Dateien von jetzt senden",
    },
  },
  projectStays: "Dateien in diesem Ordner bleiben, wie sie sind.",
  filesWillChange: (count) => (count === 1 ? "1 Datei wird geändert" : `${count} Dateien werden geändert`),
  restoredWords: { added: "kommt zurück", changed: "wie vorher", deleted: "wird entfernt" },
  movedMeanwhile: "Die Sitzung hat sich inzwischen geändert. Es wurde nichts getan.",
  conflictCount: (at, count) => (count === 1 ? "1 Konflikt" : `Konflikt ${at} von ${count}`),
  outsideNotUndone: "Was Befehle außerhalb dieses Ordners getan haben, wird nicht rückgängig gemacht.",
};
