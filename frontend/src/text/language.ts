/** The language of the page: chosen by theme.js before anything is drawn, and the same until the page is loaded again. */

export type Language = "en" | "de";

export const language: Language = globalThis.document?.documentElement.lang === "de" ? "de" : "en";

/** For numbers and dates. English ones put the day before the month. */
export const locale: string = language === "de" ? "de-DE" : "en-GB";

const retryMs = 1_000;
const retryMsMax = 60_000;

/** What `load` gives. While the server is away it is tried again: a module that failed once could never be had again. */
export async function untilLoaded<T>(load: () => Promise<T>): Promise<T> {
  for (let waitMs = retryMs; ; waitMs = Math.min(2 * waitMs, retryMsMax)) {
    try {
      return await load();
    } catch (error) {
      console.warn("Words could not be loaded", error);
      await new Promise((resume) => setTimeout(resume, waitMs));
    }
  }
}
