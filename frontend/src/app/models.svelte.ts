import { Away, type Api } from "../api/client";
import type { ModelLine, Models, Parameters, Profile, Profiles } from "../api/types";
import { readText, writeText } from "../keep/disk";
import { words } from "../words";

export type ModelChoice = { model?: string; profile?: string };

const recentPlace = "everturn.models.recent";
const recentMax = 5;

/** The models and profiles that the server offers. */
export class ModelList {
  all = $state.raw<ModelLine[]>([]);
  /** The model that answers where none was chosen. */
  default = $state<string | null>(null);
  isRead = $state(false);
  favourites = $state.raw<readonly string[]>([]);
  /** Those chosen last in this browser. */
  recent = $state.raw<readonly string[]>(JSON.parse(readText(recentPlace) ?? "[]") as string[]);
  profiles = $state.raw<Profile[]>([]);

  constructor(
    private readonly api: Api,
    private readonly complain: (error: unknown) => void,
  ) {}

  async read(): Promise<void> {
    try {
      const read = await this.api.get<Models>("api/models");
      this.all = read.models;
      this.default = read.default;
      this.favourites = read.favourites ?? [];
      this.isRead = true;
    } catch (error) {
      if (!(error instanceof Away)) this.complain(error);
    }
  }

  async readProfiles(): Promise<void> {
    this.profiles = (await this.api.get<Profiles>("api/profiles")).profiles;
  }

  /** What the picker offers: models that can answer now, and the one in use. */
  offered(model: string | null): ModelLine[] {
    return this.all.filter((known) => known.name === model || this.ready.includes(known));
  }

  noteRecent(name: string): void {
    this.recent = [name, ...this.recent.filter((known) => known !== name)].slice(0, recentMax);
    writeText(recentPlace, JSON.stringify(this.recent));
  }

  async toggleFavourite(name: string): Promise<void> {
    const isOne = this.favourites.includes(name);
    const favourites = isOne ? this.favourites.filter((known) => known !== name) : [...this.favourites, name];
    await this.api.patch("api/settings", { body: { favourite_models: favourites } });
    this.favourites = favourites;
  }

  async makeDefault(name: string): Promise<void> {
    await this.api.patch("api/settings", { body: { model: name } });
    this.default = name;
  }

  /** These parameters without what the model does not take. */
  fit(given: Parameters | null, name: string): Parameters | null {
    const can = this.find(name)?.abilities;
    if (!given || !can) return given;
    const effort = given.effort && (can.efforts ?? []).includes(given.effort) ? given.effort : null;
    const temperature = can.temperature === false ? null : (given.temperature ?? null);
    const limit = given.output_tokens_max ?? null;
    return effort === null && temperature === null && limit === null ? null : { effort, temperature, output_tokens_max: limit };
  }

  /** The models that can answer now. One that seems to be for images, say, is in the settings' list only. */
  get ready(): ModelLine[] {
    return this.all.filter((model) => model.state === "ready" && model.can_chat !== false);
  }

  /** Whether a message would be answered: the default model has its key, or the package that runs it here. */
  get canAnswer(): boolean {
    const state = this.find(this.default)?.state;
    return state === undefined ? this.all.length > 0 : state !== "needs_key" && state !== "no_runtime";
  }

  /** The label, with its provider where two models have the same one. */
  distinct(name: string): string {
    const label = this.label(name);
    const isAlone = this.ready.every((model) => model.name === name || this.label(model.name) !== label);
    const provider = name.slice(0, name.indexOf(":"));
    return isAlone ? label : `${label} (${words.providers[provider]?.[0] ?? provider})`;
  }

  /** What people call the model; null: the default one. */
  label(name: string | null | undefined): string {
    const wanted = name ?? this.default;
    const known = this.find(wanted);
    // The note of a local model is its proper name; the others are best known by their own.
    if (known?.size && known.note && known.state !== "no_runtime") return known.note.replace(/ \(.*\)$/, "");
    return wanted?.slice(wanted.indexOf(":") + 1) ?? words.defaultModel;
  }

  /** How many tokens the model can read; null: not known. */
  contextOf(name: string | null | undefined): number | null {
    const known = this.find(name ?? this.default);
    return known?.context_tokens ?? known?.prices?.context_tokens ?? null;
  }

  private find(name: string | null): ModelLine | undefined {
    return this.all.find((model) => model.name === name);
  }
}
