// Runs before the first paint, so that a dark page never flashes light and the sidebar has its width. A file, because the page's
// policy allows no inline script.
(function () {
  var root = document.documentElement;
  var choice = null;
  try {
    choice = localStorage.getItem("everturn.theme");
    var width = Number(localStorage.getItem("everturn.side-width"));
    if (width) root.style.setProperty("--w-side", width + "px");
    if (localStorage.getItem("everturn.side") === "closed") root.dataset.side = "closed";
  } catch (error) {
    // Storage is switched off: follow the system.
  }
  var dark = choice === "dark" || (choice !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = dark ? "dark" : "light";
})();
