/** German words of what narrows the list and the search. */

import type { filterWords as english } from "../../filter-words";
import type { Twin } from "../twin";

export const filterWords: Twin<typeof english> = {
  tags: "Schlagwörter",
  projects: "Ordner",
  noLabels: "Noch keine Schlagwörter oder Ordner",
  selectSeveral: "Mehrere auswählen",
  who: "Geschrieben von",
  whoOf: [["", "Allen"], ["user", "Dir"], ["assistant", "Everturn"], ["tool", "Werkzeugen"]],
  whenFound: "Wann",
  whenOf: [["", "Jederzeit"], ["1", "Letzter Tag"], ["7", "Letzte 7 Tage"], ["30", "Letzte 30 Tage"], ["365", "Letztes Jahr"]],
  between: "Zwischen zwei Tagen",
  from: "Von",
  to: "Bis",
  tagFound: "Schlagwort",
  anyTag: "Jedes Schlagwort",
};
