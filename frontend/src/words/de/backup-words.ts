/** German words of backups. */

import type { backupWords as english } from "../../backup-words";
import type { Twin } from "../twin";

export const backupWords: Twin<typeof english> = {
  section: "Sicherungen",
  lead: "Kopien von allem, was der Server hat, beim Sichern geöffnet und geprüft.",
  make: "Jetzt sichern",
  phases: {
    waiting: "Wartet, bis ein Server beginnt",
    copying: "Kopiert",
    writing: "Schreibt",
    checking: "Liest das Geschriebene zurück",
    restoring: "Stellt zur Probe wieder her",
  } as Record<string, string>,
  percent: (share: number) => `${Math.floor(share * 100)} %`,
  place: "Ort",
  encrypted: "Verschlüsselt",
  plain: "Nicht verschlüsselt",
  next: "Nächste Sicherung",
  notScheduled: "Keine geplant",
  notScheduledHelp: "at oder every_h unter [backup] in config.toml setzen.",
  last: "Letzte Sicherung",
  never: "Noch keine",
  failed: "Es wurde keine Sicherung erstellt",
  drill: "Letzte Probe-Wiederherstellung",
  drillWhole: (name: string, sessions: string, messages: string) => `${name} wurde wiederhergestellt und ist vollständig: ${sessions} Sitzungen, ${messages} Nachrichten`,
  drillFailed: (name: string) => `${name} wurde nicht wiederhergestellt`,
  drillNone: "Noch keine",
  drillOff: "Ausgeschaltet (drill_days = 0)",
  drillEvery: (days: number) => (days === 1 ? "Täglich, von selbst" : `Alle ${days} Tage, von selbst`),
  list: "Sicherungen",
  empty: "Noch keine Sicherungen",
  emptyHelp: "Jetzt eine erstellen, oder unter [backup] in config.toml einen Zeitplan setzen.",
  verified: (when: string) => `Geprüft ${when}`,
  notVerified: "Vor diesen Aufzeichnungen erstellt",
  damaged: "Beschädigt",
  leftOut: (count: number) => (count === 1 ? "1 Sache wurde ausgelassen" : `${count} Sachen wurden ausgelassen`),
  restoreHelp: "Wiederherstellen: everturn restore im Terminal. Hier lassen sich Sicherungen nicht herunterladen.",
};
