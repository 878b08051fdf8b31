import { explain, type Api } from "../api/client";
import type { WorkspaceFile, WorkspaceFiles, WorkspaceText } from "../api/types";
import { folderOf } from "../text/file-kinds";
import { marksOf, rowsOf, type Row } from "../state/tree";
import { words } from "../words";

/** The files of one session as the Files tab shows them: the tree, and the file that is looked at. */
export class SessionFiles {
  /** What each folder holds, as far as it was read. */
  private listed = $state.raw<ReadonlyMap<string, readonly WorkspaceFile[]>>(new Map());
  private open = $state.raw<ReadonlySet<string>>(new Set());
  /** The file that the preview shows. */
  selected = $state<string | null>(null);
  isRead = $state(false);
  isCut = $state(false);
  problem = $state("");
  readonly rows: Row[] = $derived(rowsOf(this.listed, this.open, marksOf([], [])));

  constructor(
    readonly session: string,
    private readonly api: Api,
  ) {}

  /** Read the workspace and every open folder again. */
  async read(): Promise<void> {
    const folders = ["", ...this.open];
    try {
      const answers = await Promise.all(folders.map((path) => this.list(path)));
      this.listed = new Map(answers.flatMap((answer, index) => (answer ? [[folders[index]!, answer.files] as const] : [])));
      this.isCut = answers.some((answer) => answer?.is_cut);
      this.isRead = true;
      this.problem = "";
    } catch (error) {
      this.problem = words.couldNotLoad(explain(error, words.serverAway));
    }
  }

  private async list(path: string): Promise<WorkspaceFiles | null> {
    try {
      return await this.api.get<WorkspaceFiles>(`api/sessions/${this.session}/files`, { query: path ? { path } : {} });
    } catch (error) {
      // An open folder may be gone by now; the workspace itself may not.
      if (path) return null;
      throw error;
    }
  }

  async openFolder(path: string): Promise<void> {
    this.open = new Set([...this.open, path]);
    if (!this.listed.has(path)) await this.read();
  }

  closeFolder(path: string): void {
    this.open = new Set([...this.open].filter((known) => known !== path));
  }

  /** Show a file, and the way to it in the tree. */
  async reveal(path: string): Promise<void> {
    this.selected = path;
    const folders: string[] = [];
    for (let folder = folderOf(path); folder; folder = folderOf(folder)) folders.push(folder);
    if (folders.every((folder) => this.open.has(folder))) return;
    this.open = new Set([...this.open, ...folders]);
    await this.read();
  }

  text(path: string): Promise<WorkspaceText> {
    return this.api.get<WorkspaceText>(`api/sessions/${this.session}/text`, { query: { path } });
  }
}
