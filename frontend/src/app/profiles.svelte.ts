import { explain, type Api } from "../api/client";
import type { Knowledge, KnowledgeList, Profile, ProfileDetail, Profiles as ProfileList, ReadProfile, ShownSkill, Tools } from "../api/types";
import { words } from "../words";

/** What a form holds: all settings, and what it may search. */
export type ProfileDraft = ProfileDetail["settings"] & { knowledge: readonly string[] };

/** The profiles, and what can be done with them. Each change reads the list again. */
export class Profiles {
  list = $state.raw<readonly Profile[]>([]);
  detail = $state.raw<ProfileDetail | null>(null);
  isRead = $state(false);
  problem = $state("");
  /** What a profile can name. */
  tools = $state.raw<readonly string[]>([]);
  skills = $state.raw<readonly string[]>([]);
  knowledge = $state.raw<readonly Knowledge[]>([]);
  servers = $state.raw<readonly string[]>([]);

  constructor(readonly api: Api) {}

  async read(): Promise<void> {
    try {
      this.list = (await this.api.get<ProfileList>("api/profiles")).profiles;
      this.isRead = true;
      this.problem = "";
    } catch (error) {
      this.problem = words.couldNotLoad(explain(error, words.serverAway));
    }
  }

  async open(name: string): Promise<void> {
    if (this.detail?.name !== name) this.detail = null;
    this.detail = await this.api.get<ProfileDetail>(`api/profiles/${name}`);
  }

  async readNames(): Promise<void> {
    const [tools, servers, skills, knowledge] = await Promise.all([
      this.api.get<Tools>("api/tools"),
      this.api.get<{ servers: { name: string }[] }>("api/mcp"),
      this.api.get<{ skills: ShownSkill[] }>("api/skills"),
      this.api.get<KnowledgeList>("api/knowledge"),
    ]);
    this.tools = (tools.tools ?? []).map((tool) => tool.name).filter((name) => !name.includes("__"));
    this.servers = (servers.servers ?? []).map((server) => server.name);
    this.skills = (skills.skills ?? []).map((skill) => skill.name);
    this.knowledge = knowledge.knowledge ?? [];
  }

  async add(name: string, draft: ProfileDraft, takesSessions: boolean): Promise<void> {
    await this.api.post("api/profiles", { body: { ...draft, name, takes_sessions: takesSessions } });
    await this.read();
  }

  async change(name: string, draft: Partial<ProfileDraft>, revision: number): Promise<void> {
    await this.api.put(`api/profiles/${name}`, { body: draft, version: revision });
    await this.read();
  }

  async remove(name: string, revision: number): Promise<void> {
    await this.api.delete(`api/profiles/${name}`, { version: revision });
    this.detail = null;
    await this.read();
  }

  readFile(text: string, name: string): Promise<ReadProfile> {
    return this.api.post<ReadProfile>("api/profile-files", { body: { text, name } });
  }
}
