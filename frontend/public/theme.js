// Runs before the first paint, so that a dark page never flashes light. A file, because the page's
// policy allows no inline script.
(function () {
  var choice = null;
  try {
    choice = localStorage.getItem("everturn.theme");
  } catch (error) {
    // Storage is switched off: follow the system.
  }
  var dark = choice === "dark" || (choice !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
