import { mount } from "svelte";
import "@fontsource-variable/inter/opsz.css";
import "@fontsource-variable/inter/wght-italic.css";
import "@fontsource-variable/jetbrains-mono/wght.css";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/frame.css";
import "./styles/session.css";
import "./styles/dock.css";
import "./styles/first.css";
import App from "./App.svelte";

/** The sheets stand after the shell, which is painted before they are there. Those of later parts are added to the head, and must win. */
for (const late of document.querySelectorAll<HTMLLinkElement>("body > link[rel=stylesheet]")) {
  const sheet = late.cloneNode() as HTMLLinkElement;
  sheet.onload = () => late.remove();
  document.head.append(sheet);
}

const root = new URL("./", document.baseURI.split("#")[0]).href;
mount(App, { target: document.getElementById("page")!, props: { root } });
document.getElementById("shell")?.remove();
// Push, and a page of its own while the server is away. Browsers have it on HTTPS and localhost only.
void navigator.serviceWorker?.register(new URL("sw.js", root), { updateViaCache: "none" }).catch(() => undefined);
