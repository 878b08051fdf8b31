/** Why a call needs approval, as the server says it, in German. What is not known here stays as it was said. */

const known: [RegExp, string][] = [
  [/^deletes whole folders$/, "löscht ganze Ordner"],
  [/^deletes what it finds$/, "löscht, was er findet"],
  [/^destroys content \((.+)\)$/, "vernichtet Inhalte ($1)"],
  [/^copies raw data \(dd\)$/, "kopiert Rohdaten (dd)"],
  [/^pushes to a remote$/, "überträgt zu einem entfernten Repository"],
  [/^throws away uncommitted work \((.+)\)$/, "verwirft nicht eingecheckte Arbeit ($1)"],
  [/^deletes files that git does not know \(git clean\)$/, "löscht Dateien, die git nicht kennt (git clean)"],
  [/^throws away stashed work$/, "verwirft zurückgelegte Arbeit (stash)"],
  [/^deletes a branch$/, "löscht einen Branch"],
  [/^rewrites history \((.+)\)$/, "schreibt die Geschichte um ($1)"],
  [/^could reach the network \((.+)\)$/, "könnte das Netz erreichen ($1)"],
  [/^runs without a sandbox \((.+)\)$/, "läuft ohne Sandbox ($1)"],
  [/^uses (.+)$/, "benutzt $1"],
  [/^writes to (.+)$/, "schreibt in $1"],
  [/^reads (.+)$/, "liest $1"],
  [/^contains invisible characters$/, "enthält unsichtbare Zeichen"],
  [/^cannot be parsed as a shell command$/, "lässt sich nicht als Shell-Befehl lesen"],
  [/^contains an escaped blank$/, "enthält ein maskiertes Leerzeichen"],
  [/^contains shell code \((.+)\)$/, "enthält Shell-Code ($1)"],
  [/^could change what other programs run in this project \((.+)\)$/, "könnte ändern, was andere Programme in diesem Projekt ausführen ($1)"],
  [/^reaches (.+)$/, "erreicht $1"],
  [/^expands (.+)$/, "setzt $1 ein"],
  [/^has arguments after a redirection$/, "hat Argumente nach einer Umleitung"],
];
const scope = "If allowed for this session or always, the agent may then ";
/** What the agent may do after an approval that lasts; commands stay as they are. */
const covers: [RegExp, string][] = [
  [/^in ('[^']*'|\S+) run exactly ([^]*)$/, "in $1 genau ausführen: $2"],
  [/^run exactly ([^]*)$/, "genau ausführen: $1"],
  [/^reach (.+)$/, "$1 erreichen"],
  [/^call (.+) with any arguments$/, "$1 mit beliebigen Argumenten aufrufen"],
  [/^list and read all resources of (.+)$/, "alle Ressourcen von $1 auflisten und lesen"],
  [/^delegate to (.+)$/, "Aufgaben an $1 geben"],
];

function coveredInGerman(text: string): string {
  for (const [pattern, said] of covers) if (pattern.test(text)) return text.replace(pattern, said);
  return text;
}

function one(reason: string): string {
  for (const [pattern, said] of known) if (pattern.test(reason)) return reason.replace(pattern, said);
  return "";
}

/** "It deletes a branch, and it pushes to a remote." in German; the server's words where one of them is not known. */
export function reasonInGerman(why: string): string {
  // The scope comes last, and may hold a command of several lines with full stops of its own.
  const at = why.indexOf(scope);
  const tail = at < 0 ? "" : `Mit einer Erlaubnis für die Sitzung oder für immer darf der Agent dann ${coveredInGerman(why.slice(at + scope.length).replace(/\.$/, ""))}`;
  const sentences = (at < 0 ? why : why.slice(0, at)).trim().split(/(?<=\.) (?=[A-Z])/);
  const said = sentences.map((sentence) => {
    const reasons = sentence
      .replace(/\.$/, "")
      .split(/,? and (?=it )|, (?=it )/)
      .map((reason) => one(reason.replace(/^it /i, "")));
    return reasons.every(Boolean) ? `Der Befehl ${reasons.join(" und ")}.` : sentence;
  });
  return [...said, tail].filter(Boolean).join(" ");
}
