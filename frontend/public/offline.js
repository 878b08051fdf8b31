/* While the server is away: says what waits here, and comes back when the server answers. */
"use strict";

const root = new URL("./", document.currentScript.src).href;
const isGerman = /^de\b/i.test(navigator.language);
if (isGerman) {
  document.documentElement.lang = "de";
  document.querySelector("h1").textContent = "Der Server ist nicht da";
  document.getElementById("why").textContent = "Diese Seite kommt von selbst zurück, sobald der Server antwortet.";
  document.getElementById("again").textContent = "Neu versuchen";
}
const german = (count) => (count === 1 ? "1 ungesendete Nachricht liegt in diesem Browser." : `${count} ungesendete Nachrichten liegen in diesem Browser.`);
const say = (count) => {
  if (count && isGerman) document.getElementById("unsent").textContent = german(count);
  else if (count) document.getElementById("unsent").textContent = count === 1 ? "1 unsent message is kept in this browser." : `${count} unsent messages are kept in this browser.`;
};

async function look() {
  try {
    if ((await fetch(`${root}healthz`, { cache: "no-store" })).ok) return location.reload();
  } catch {
    // Still away.
  }
  setTimeout(look, 3000);
}

document.getElementById("again").addEventListener("click", () => location.reload());
// Only if the page has made it: opening it here first would leave it without its stores.
indexedDB.databases?.().then((known) => {
  if (!known.some((one) => one.name === "everturn")) return;
  const opening = indexedDB.open("everturn");
  opening.onsuccess = () => {
    const database = opening.result;
    if (!database.objectStoreNames.contains("outbox")) return database.close();
    const count = database.transaction("outbox").objectStore("outbox").count();
    count.onsuccess = () => {
      say(count.result);
      database.close();
    };
  };
});
setTimeout(look, 3000);
