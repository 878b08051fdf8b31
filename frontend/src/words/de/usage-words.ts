/** German words of usage and the audit log. */

import type { usageWords as english } from "../../usage-words";
import type { Twin } from "../twin";

export const usageWords: Twin<typeof english> = {
  usage: "Verbrauch",
  usageLead: "Tokens und Kosten deiner Antworten, nach Tag und Modell.",
  period: "Zeitraum",
  periods: { "7": "7 Tage", "30": "30 Tage", "90": "90 Tage", "365": "1 Jahr" },
  show: "Anzeigen",
  measures: { tokens: "Tokens", cost: "Kosten" },
  perDay: { tokens: "Tokens pro Tag", cost: "Kosten pro Tag" },
  dayValue: (day, value) => `${day}: ${value}`,
  most: (value) => `Höchstwert: ${value}`,
  asTable: "Als Tabelle",
  day: "Tag",
  answers: "Antworten",
  csv: "CSV herunterladen",
  // The columns of the file keep their names: programs read them.
  csvColumns: ["day", "model", "answers", "input_tokens", "cached_tokens", "output_tokens", "cost_usd"],
  nothingUsed: "In dieser Zeit wurde nichts verbraucht.",
  byModel: "Nach Modell",
  // audit log
  audit: "Audit-Protokoll",
  auditLead: "Anmeldungen, Schlüssel, Freigaben, Budgets, Zeitpläne und andere Änderungen, auch die aus Chats, Neuestes zuerst. Steht in audit.jsonl im Datenordner.",
  auditFilter: "Filtern",
  auditEmpty: "Noch wurde nichts protokolliert.",
  auditNone: "Nichts passt.",
  auditNewest: (count) => `Die neuesten ${count} Einträge`,
};
