// Runs before the first paint, so that a dark page never flashes light, the sidebar has its width and the words are those of the
// reader's language. A file, because the page's policy allows no inline script.
(function () {
  var root = document.documentElement;
  var choice = null;
  var language = null;
  try {
    language = localStorage.getItem("everturn.language");
    choice = localStorage.getItem("everturn.theme");
    var width = Number(localStorage.getItem("everturn.side-width"));
    if (width) root.style.setProperty("--w-side", width + "px");
    if (localStorage.getItem("everturn.side") === "closed") root.dataset.side = "closed";
  } catch (error) {
    // Storage is switched off: follow the system.
  }
  var dark = choice === "dark" || (choice !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = dark ? "dark" : "light";
  var spoken = (navigator.languages || [navigator.language]).map(function (name) {
    return name.slice(0, 2).toLowerCase();
  });
  var known = ["en", "de"];
  root.lang = known.indexOf(language) >= 0 ? language : spoken.filter(function (name) { return known.indexOf(name) >= 0; })[0] || "en";
  (document.currentScript.getAttribute("data-words-" + root.lang) || "").split(" ").filter(Boolean).forEach(function (file) {
    var words = document.createElement("link");
    words.rel = "modulepreload";
    words.href = file;
    document.head.append(words);
  });
})();
