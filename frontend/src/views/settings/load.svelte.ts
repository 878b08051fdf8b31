import { explain } from "../../api/client";
import type { Page } from "../../app/page.svelte";
import { words } from "../../words";

/** Something that a settings page reads: its value, or why it is not there. */
export class Loaded<T> {
  value = $state.raw<T | null>(null);
  problem = $state("");

  constructor(
    private readonly page: Page,
    private readonly path: string,
  ) {
    void this.read();
  }

  async read(): Promise<void> {
    try {
      this.value = await this.page.api.get<T>(this.path);
      this.problem = "";
    } catch (error) {
      this.problem = words.couldNotLoad(explain(error, words.serverAway));
    }
  }
}
