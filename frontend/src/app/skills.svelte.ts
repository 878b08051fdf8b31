import { explain, type Api } from "../api/client";
import type { ShownSkill, SkillLine, SkillLines } from "../api/types";
import { skillWords } from "../skill-words";
import { words } from "../words";

/** A file as the server takes it: its text, its bytes, or the hash of one that stays. */
export interface GivenFile {
  path: string;
  text?: string;
  base64?: string;
  sha256?: string;
  is_executable?: boolean;
}

/** The skills, as the settings list them. */
export class Skills {
  items = $state.raw<readonly SkillLine[]>([]);
  isRead = $state(false);
  problem = $state("");

  constructor(private readonly api: Api) {}

  async read(): Promise<void> {
    try {
      this.items = (await this.api.get<SkillLines>("api/skills")).items;
      this.isRead = true;
      this.problem = "";
    } catch (error) {
      this.problem = words.couldNotLoad(explain(error, words.serverAway));
    }
  }

  get(id: string): Promise<ShownSkill> {
    return this.api.get(`api/skills/${id}`);
  }

  async switch(id: string, isOn: boolean): Promise<void> {
    await this.api.patch(`api/skills/${id}`, { body: { is_on: isOn } });
    await this.read();
  }

  decide(id: string, digest: string, use: boolean): Promise<ShownSkill> {
    return this.api.post(`api/skills/${id}/trust`, { body: { digest, use } });
  }

  /** `base` null: a new skill. */
  save(id: string, files: GivenFile[], base: string | null): Promise<ShownSkill> {
    if (base === null) return this.api.post("api/skills", { body: { files, trust: true } });
    return this.api.put(`api/skills/${id}`, { body: { files, base, trust: true } });
  }

  async remove(id: string): Promise<void> {
    await this.api.delete(`api/skills/${id}`);
    await this.read();
  }

  async importZip(file: File): Promise<SkillLine[]> {
    const body = new FormData();
    body.append("file", file);
    const made = await this.api.post<SkillLines>("api/skills/import", { body, query: { name: file.name }, timeoutMs: 120_000 });
    return made.items;
  }

  /** Each folder with a SKILL.md in what was chosen; one in another belongs to that. */
  async importFolder(chosen: readonly File[]): Promise<SkillLine[]> {
    const roots = chosen
      .map((file) => file.webkitRelativePath)
      .filter((path) => path.endsWith("/SKILL.md"))
      .map((path) => path.slice(0, -"SKILL.md".length))
      .filter((root, _, all) => !all.some((other) => other !== root && root.startsWith(other)));
    if (!roots.length) throw new Error(skillWords.noSkillFile);
    const made: SkillLine[] = [];
    for (const root of roots) {
      const inside = chosen.filter((file) => file.webkitRelativePath.startsWith(root) && !/(^|\/)(\.git|\.DS_Store|__pycache__)(\/|$)/.test(file.webkitRelativePath));
      const files = await Promise.all(
        inside.map(async (file): Promise<GivenFile> => ({ path: file.webkitRelativePath.slice(root.length), base64: await base64Of(file), is_executable: /\.(sh|py|pl|rb)$/.test(file.name) })),
      );
      made.push(await this.api.post<ShownSkill>("api/skills", { body: { files }, timeoutMs: 120_000 }));
    }
    return made;
  }
}

function base64Of(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(reader.error ?? new Error(file.name));
    reader.readAsDataURL(file);
  });
}
