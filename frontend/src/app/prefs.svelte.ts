import { readText, writeText } from "../keep/disk";
import type { Language } from "../text/language";

/** The tabs of the panel. */
export type PanelTab = "turn" | "files" | "jobs";
export type Theme = "system" | "light" | "dark";
/** Auto: the first language of the browser that the page speaks. */
export type LanguageChoice = "auto" | Language;

const sideMin = 220;
const sideMax = 360;

/** How this browser wants the page to look. */
export class Prefs {
  theme = $state<Theme>("system");
  size = $state<"normal" | "large">("normal");
  language = $state<LanguageChoice>("auto");
  isSideOpen = $state(true);
  isPanelOpen = $state(false);
  panelTab = $state<PanelTab>("turn");
  sideWidth = $state(264);
  notifies = $state(false);
  private readonly dark = matchMedia("(prefers-color-scheme: dark)");

  constructor() {
    const theme = readText("everturn.theme");
    if (theme === "light" || theme === "dark") this.theme = theme;
    if (readText("everturn.size") === "large") this.size = "large";
    const language = readText("everturn.language");
    if (language === "en" || language === "de") this.language = language;
    this.isSideOpen = readText("everturn.side") !== "closed";
    const panel = readText("everturn.panel");
    this.isPanelOpen = panel !== null && innerWidth > 1180;
    if (panel === "files" || panel === "jobs") this.panelTab = panel;
    this.notifies = readText("everturn.notify") === "on";
    const width = Number(readText("everturn.side-width"));
    if (width) this.sideWidth = clamp(width);
    this.dark.addEventListener("change", () => this.paint());
    this.paint();
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    writeText("everturn.theme", theme === "system" ? null : theme);
    this.paint();
  }
  setSize(size: "normal" | "large"): void {
    this.size = size;
    writeText("everturn.size", size === "large" ? size : null);
    this.paint();
  }
  /** The words are loaded with the page: the caller loads it again. */
  setLanguage(language: LanguageChoice): void {
    this.language = language;
    writeText("everturn.language", language === "auto" ? null : language);
  }
  toggleSide(): void {
    this.isSideOpen = !this.isSideOpen;
    writeText("everturn.side", this.isSideOpen ? null : "closed");
  }
  setPanel(isOpen: boolean, tab: PanelTab = this.panelTab): void {
    this.isPanelOpen = isOpen;
    this.panelTab = tab;
    writeText("everturn.panel", isOpen ? (tab === "turn" ? "open" : tab) : null);
  }
  /** Where the panel lies over the session, it does not cover the next one. */
  closeSheet(): void {
    if (innerWidth <= 1180 && this.isPanelOpen) this.setPanel(false);
  }
  setSideWidth(width: number): void {
    this.sideWidth = clamp(width);
    writeText("everturn.side-width", String(this.sideWidth));
    this.paint();
  }
  setNotifies(isOn: boolean): void {
    this.notifies = isOn;
    writeText("everturn.notify", isOn ? "on" : null);
  }

  private paint(): void {
    const isDark = this.theme === "dark" || (this.theme === "system" && this.dark.matches);
    const root = document.documentElement;
    root.dataset.theme = isDark ? "dark" : "light";
    root.dataset.size = this.size;
    root.style.setProperty("--w-side", `${this.sideWidth}px`);
  }
}

function clamp(width: number): number {
  return Math.max(sideMin, Math.min(sideMax, Math.round(width)));
}
