import { Away, Problem, explain, type Api } from "../api/client";
import { FilesApi, isStale, type At, type FileContent } from "../api/files";
import type { FileChanges, WorkspaceFile, WorkspaceFiles } from "../api/types";
import { marksOf, rowsOf, rowsOfChanges, type Row, type Show } from "../state/tree";
import { folderOf, nameOf, numberCopy } from "../text/file-kinds";
import { fileWords } from "../file-words";
import { words } from "../words";
import type { OpenSession } from "./open-session.svelte";

/** A text that is being edited, as it is typed so far. */
export interface Edit {
  text: string;
  /** The text that it began with. */
  began: string;
  /** The version that it began with; null: no file is there. */
  tag: string | null;
  isSaving: boolean;
  problem: string;
  /** What is there now, where it is not what the edit began with. */
  theirs: FileContent | null;
}

/** A file on its way into the workspace, or one that waits for a decision. */
export interface Upload {
  path: string;
  file: File;
  state: "sending" | "exists" | "failed";
  problem: string;
}

const nothing: FileChanges = { changes: [], total: 0 };
const copiesMax = 50;

/** The files of one session as the Files tab shows them: the tree, the file that is looked at, edits and uploads. */
export class SessionFiles {
  readonly api: FilesApi;
  show = $state<Show>(innerWidth <= 760 ? "turn" : "all");
  /** The file that the preview shows, and as of when. */
  shown = $state.raw<{ path: string; at: At } | null>(null);
  /** Two points whose files are compared in place of the tree. */
  compared = $state.raw<{ from: At; to: At } | null>(null);
  edits = $state.raw<ReadonlyMap<string, Edit>>(new Map());
  uploads = $state.raw<readonly Upload[]>([]);
  isRead = $state(false);
  isCut = $state(false);
  problem = $state("");
  /** Counts what this page has written: what is shown is read again. */
  written = $state(0);
  ofTurn = $state.raw<FileChanges>(nothing);
  ofSession = $state.raw<FileChanges>(nothing);
  /** What each folder holds, as far as it was read. */
  private listed = $state.raw<ReadonlyMap<string, readonly WorkspaceFile[]>>(new Map());
  private open = $state.raw<ReadonlySet<string>>(new Set());
  /** Folders that were closed among the changes. */
  private closed = $state.raw<ReadonlySet<string>>(new Set());
  constructor(
    readonly session: string,
    api: Api,
  ) {
    this.api = new FilesApi(session, api);
  }

  /** The rows of the tree. Not kept here: the session outlives every view, and so would what they are derived from. */
  get rows(): Row[] {
    const marks = marksOf(this.ofSession.changes, this.ofTurn.changes);
    if (this.show === "all") return rowsOf(this.listed, this.open, marks);
    return rowsOfChanges(this.changes.changes, this.closed, marks);
  }

  /** What changed in the turn, or in the session. */
  get changes(): FileChanges {
    return this.show === "turn" ? this.ofTurn : this.ofSession;
  }

  /** Read what is shown again: the folders, and what the turn and the session changed. */
  async read(turnId: string | null): Promise<void> {
    try {
      const [, session, turn] = await Promise.all([
        this.readFolders(),
        this.api.changes("start", "now"),
        turnId ? this.api.changesOfTurn(turnId) : nothing,
      ]);
      this.ofSession = session;
      this.ofTurn = turn;
      this.problem = "";
    } catch (error) {
      this.problem = words.couldNotLoad(explain(error, words.serverAway));
    }
    this.isRead = true;
  }

  private async readFolders(): Promise<void> {
    const folders = ["", ...this.open];
    const answers = await Promise.all(folders.map((path) => this.list(path)));
    this.listed = new Map(answers.flatMap((answer, index) => (answer ? [[folders[index]!, answer.files] as const] : [])));
    this.isCut = answers.some((answer) => answer?.is_cut);
  }

  private async list(path: string): Promise<WorkspaceFiles | null> {
    try {
      return await this.api.list(path);
    } catch (error) {
      // An open folder may be gone by now; the workspace itself may not.
      if (path && error instanceof Problem) return null;
      throw error;
    }
  }

  async openFolder(path: string): Promise<void> {
    if (this.show !== "all") {
      this.closed = without(this.closed, path);
      return;
    }
    this.open = new Set([...this.open, path]);
    if (this.listed.has(path)) return;
    try {
      const answer = await this.api.list(path);
      this.listed = new Map([...this.listed, [path, answer.files]]);
      this.isCut ||= answer.is_cut;
    } catch (error) {
      this.open = without(this.open, path);
      this.problem = words.couldNotLoad(explain(error, words.serverAway));
    }
  }

  closeFolder(path: string): void {
    if (this.show === "all") this.open = without(this.open, path);
    else this.closed = new Set([...this.closed, path]);
  }

  /** Show a file, and the way to it in the tree. */
  reveal(path: string, at: At = "now"): void {
    this.compared = null;
    this.shown = { path, at };
    for (let folder = folderOf(path); folder; folder = folderOf(folder)) void this.openFolder(folder);
  }

  /** When the file in the folder was last written, if it is listed. */
  modifiedAt(path: string): number | null {
    return this.listed.get(folderOf(path))?.find((file) => file.path === path)?.modified_at ?? null;
  }

  // --- editing --------------------------------------------------------------------------------

  startEdit(path: string, content: FileContent): void {
    const began = content.text ?? "";
    this.putEdit(path, { text: began, began, tag: content.tag, isSaving: false, problem: "", theirs: null });
  }

  typeEdit(path: string, text: string): void {
    this.changeEdit(path, { text });
  }

  dropEdit(path: string): void {
    this.edits = new Map([...this.edits].filter(([known]) => known !== path));
    if (!this.edits.size) removeEventListener("beforeunload", this.askBeforeLeaving);
  }

  /** Save the text. If the file changed meanwhile nothing is overwritten: both are kept and shown. */
  async saveEdit(path: string): Promise<boolean> {
    const edit = this.edits.get(path);
    if (!edit || edit.isSaving) return false;
    this.putEdit(path, { ...edit, isSaving: true, problem: "" });
    try {
      const saved = await this.api.save(path, new Blob([edit.text]), edit.theirs ? edit.theirs.tag || null : edit.tag);
      this.savedEdit(path, edit.text, saved.sha256);
      this.written += 1;
      return true;
    } catch (error) {
      const why = isStale(error) ? await this.staleEdit(path, edit) : { problem: whyNotSaved(error) };
      this.changeEdit(path, { isSaving: false, ...why });
      return false;
    }
  }

  /** What was typed while the text was on its way is still to be saved. */
  private savedEdit(path: string, text: string, tag: string): void {
    const typed = this.edits.get(path)?.text;
    if (typed === undefined || typed === text) this.dropEdit(path);
    else this.changeEdit(path, { began: text, tag, isSaving: false, theirs: null });
  }

  private async staleEdit(path: string, edit: Edit): Promise<Partial<Edit>> {
    try {
      return { problem: fileWords.fileChangedMeanwhile, theirs: await this.present(path) };
    } catch (error) {
      // The next attempt is refused in the same way, and reads it again.
      return { problem: words.couldNotLoad(explain(error, words.serverAway)), theirs: edit.theirs };
    }
  }

  /** Unless it was discarded meanwhile. */
  private changeEdit(path: string, changes: Partial<Edit>): void {
    const edit = this.edits.get(path);
    if (edit) this.putEdit(path, { ...edit, ...changes });
  }

  private putEdit(path: string, edit: Edit): void {
    this.edits = new Map([...this.edits, [path, edit]]);
    addEventListener("beforeunload", this.askBeforeLeaving);
  }

  /** The text is only in this page: the browser asks before it goes. */
  private readonly askBeforeLeaving = (event: Event): void => {
    if ([...this.edits.values()].some((edit) => edit.text !== edit.began)) event.preventDefault();
  };

  /** What is there now; a file that is gone is an empty one without a tag. */
  private async present(path: string): Promise<FileContent> {
    try {
      return await this.api.content(path);
    } catch (error) {
      if (error instanceof Problem && error.status === 404) return { text: "", size: 0, tag: "", isCut: false };
      throw error;
    }
  }

  // --- uploads --------------------------------------------------------------------------------

  /** Put files into a folder. One that is there already is not overwritten: the user is asked. */
  async upload(folder: string, list: Iterable<File>): Promise<void> {
    const all = [...list].map((file): Upload => ({ path: folder ? `${folder}/${file.name}` : file.name, file, state: "sending", problem: "" }));
    this.uploads = [...this.uploads, ...all];
    for (const upload of all) await this.send(upload, upload.path, null);
  }

  async again(upload: Upload): Promise<void> {
    await this.send(upload, upload.path, null);
  }

  async replace(upload: Upload): Promise<void> {
    const there = await this.present(upload.path);
    await this.send(upload, upload.path, there.tag || null);
  }

  /** Under the first name of its kind that is free: "notes (2).md". */
  async keepBoth(upload: Upload): Promise<void> {
    for (let copy = 2; copy <= copiesMax; copy += 1) {
      if (!(await this.send(upload, numberCopy(upload.path, copy), null))) continue;
      return;
    }
  }

  leaveOut(upload: Upload): void {
    this.uploads = this.uploads.filter((known) => known.file !== upload.file);
  }

  /** True unless another file has this name. */
  private async send(upload: Upload, path: string, tag: string | null): Promise<boolean> {
    this.put({ ...upload, state: "sending", problem: "" });
    try {
      await this.api.save(path, upload.file, tag);
      this.leaveOut(upload);
      this.written += 1;
      this.reveal(path);
    } catch (error) {
      if (isStale(error)) {
        this.put({ ...upload, state: "exists", problem: fileWords.fileExists(nameOf(upload.path)) });
        return false;
      }
      this.put({ ...upload, state: "failed", problem: whyNotSaved(error) });
    }
    return true;
  }

  private put(upload: Upload): void {
    this.uploads = this.uploads.map((known) => (known.file === upload.file ? upload : known));
  }
}

/** The files of a session. Not a part of it: the first sight needs none of this. */
export function filesOf(opened: OpenSession): SessionFiles {
  return (opened.files ??= new SessionFiles(opened.id, opened.api));
}

function whyNotSaved(error: unknown): string {
  if (error instanceof Away && error.status) return fileWords.filesNotSaved;
  return words.couldNotSave(explain(error, words.serverAway));
}

function without(paths: ReadonlySet<string>, path: string): ReadonlySet<string> {
  return new Set([...paths].filter((known) => known !== path));
}
