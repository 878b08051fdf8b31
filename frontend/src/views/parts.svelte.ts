/** The parts of the page that the first sight does not need. */

import { getContext, setContext } from "svelte";

const retryMs = 1_000;
const retryMsMax = 60_000;

/** One part: loaded once, then kept. While the server is away, loading is tried again. */
export class Part<T> {
  /** The component, once it is loaded. */
  view = $state.raw<T | null>(null);
  private isLoading = false;

  constructor(private readonly fetch: () => Promise<{ default: T }>) {}

  load(waitMs = retryMs): void {
    if (this.isLoading) return;
    this.isLoading = true;
    // In this order, in which their styles are applied.
    Promise.all([import("../styles/later"), this.fetch()]).then(
      ([, module]) => (this.view = module.default),
      () => {
        this.isLoading = false;
        setTimeout(() => this.load(Math.min(2 * waitMs, retryMsMax)), waitMs);
      },
    );
  }
}

export class Parts {
  readonly transcript = new Part(() => import("./Roll.svelte"));
  readonly queue = new Part(() => import("./Queue.svelte"));
  readonly connect = new Part(() => import("./Connect.svelte"));
  readonly signIn = new Part(() => import("./SignIn.svelte"));
  readonly keys = new Part(() => import("./Keys.svelte"));
  readonly folders = new Part(() => import("./FolderPicker.svelte"));
  readonly imported = new Part(() => import("./Imported.svelte"));
  readonly moveSheet = new Part(() => import("./MoveSheet.svelte"));
  readonly promptForm = new Part(() => import("./PromptForm.svelte"));
  readonly panel = new Part(() => import("./Panel.svelte"));
  readonly within = new Part(() => import("./Within.svelte"));
  readonly pickBar = new Part(() => import("./PickBar.svelte"));
  readonly jobs = new Part(() => import("./jobs/JobsView.svelte"));
  readonly jobLine = new Part(() => import("./jobs/JobLine.svelte"));
  readonly models = new Part(() => import("./models/ModelSheet.svelte"));
  readonly needs = new Part(() => import("./needs/Needs.svelte"));
  readonly schedules = new Part(() => import("./schedules/Schedules.svelte"));
  readonly settings = new Part(() => import("./settings/Settings.svelte"));

  /** Load every part before it is wanted: the server may be away by then. */
  loadAll(): void {
    for (const part of Object.values(this) as Part<unknown>[]) part.load();
  }
}

const key = Symbol("parts");

export function provideParts(parts: Parts): Parts {
  return setContext(key, parts);
}

export function useParts(): Parts {
  return getContext<Parts>(key);
}
