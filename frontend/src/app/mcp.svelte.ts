import { explain, type Api } from "../api/client";
import type { McpServer, McpServers } from "../api/types";
import { words } from "../words";

/** A program may have to be downloaded before it answers. */
const testMs = 90_000;

/** What a server is made of; keys are write-only. */
export type ServerSettings = Record<string, unknown>;

/** The MCP servers, and what can be done with them. Each change reads the list again. */
export class Mcp {
  servers = $state.raw<readonly McpServer[]>([]);
  toolsOn = $state(0);
  isSearched = $state(false);
  isRead = $state(false);
  problem = $state("");
  busy = $state("");

  constructor(private readonly api: Api) {}

  async read(): Promise<void> {
    try {
      const found = await this.api.get<McpServers>("api/mcp");
      this.servers = found.servers;
      this.toolsOn = found.tools_on ?? 0;
      this.isSearched = found.searched ?? false;
      this.isRead = true;
      this.problem = "";
    } catch (error) {
      this.problem = words.couldNotLoad(explain(error, words.serverAway));
    }
  }

  find(name: string): McpServer | null {
    return this.servers.find((server) => server.name === name) ?? null;
  }

  add(settings: ServerSettings): Promise<unknown> {
    return this.do("", () => this.api.post("api/mcp", { body: settings }));
  }

  change(name: string, settings: ServerSettings): Promise<unknown> {
    return this.do(name, () => this.api.patch(`api/mcp/${name}`, { body: settings }));
  }

  remove(name: string): Promise<unknown> {
    return this.do(name, () => this.api.delete(`api/mcp/${name}`));
  }

  test(name: string): Promise<unknown> {
    return this.do(name, () => this.api.post(`api/mcp/${name}/test`, { timeoutMs: testMs }));
  }

  trust(name: string, digest: string): Promise<unknown> {
    return this.do(name, () => this.api.post(`api/mcp/${name}/trust`, { body: { digest }, timeoutMs: testMs }));
  }

  setMode(name: string, tool: string, digest: string, mode: string): Promise<unknown> {
    return this.do(name, () => this.api.put(`api/mcp/${name}/tools`, { body: { tool, digest, mode } }));
  }

  /** Where the browser has to go; empty: the server takes calls already. */
  async signIn(name: string): Promise<string> {
    const found = await this.do(name, () => this.api.post<{ address: string }>(`api/mcp/${name}/sign-in`, { timeoutMs: testMs }));
    return found.address;
  }

  signOut(name: string): Promise<unknown> {
    return this.do(name, () => this.api.delete(`api/mcp/${name}/sign-in`));
  }

  private async do<T>(name: string, what: () => Promise<T>): Promise<T> {
    this.busy = name;
    try {
      return await what();
    } finally {
      this.busy = "";
      await this.read();
    }
  }
}
