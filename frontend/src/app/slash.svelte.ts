import type { Api } from "../api/client";
import type { Expanded, SlashEntry, SlashList } from "../api/types";

const freshMs = 15_000;

/** The skills and prompts that can be typed after a slash, for the session that is open. */
export class SlashNames {
  items = $state.raw<readonly SlashEntry[]>([]);
  private of: string | null | undefined;
  private readAt = 0;

  constructor(private readonly api: Api) {}

  /** A help while typing: without it a name can still be typed. */
  async look(session: string | null): Promise<void> {
    if (this.of === session && Date.now() - this.readAt < freshMs) return;
    if (this.of !== session) this.items = [];
    this.of = session;
    this.readAt = Date.now();
    try {
      const found = await this.api.get<SlashList>("api/slash", { query: session ? { session } : {} });
      if (this.of === session) this.items = found.items;
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      this.readAt = 0;
    }
  }

  async fill(name: string, values: Record<string, string>): Promise<string> {
    return (await this.api.post<Expanded>("api/slash", { body: { name, values } })).text;
  }

  async expand(line: string, session: string | null): Promise<string> {
    return (await this.api.post<Expanded>("api/slash", { body: session ? { line, session } : { line } })).text;
  }
}
