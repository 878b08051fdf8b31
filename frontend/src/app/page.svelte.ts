import { getContext, setContext, tick } from "svelte";
import { Api, explain, freshKey } from "../api/client";
import type { Hits, ImportedHistory, ListEvent, Session, Trouble } from "../api/types";
import { Disk } from "../keep/disk";
import type { LocalFile, Unsent } from "../keep/unsent";
import { answerOf, textOf } from "../state/items";
import { needsYou, titleOf } from "../state/list";
import { words } from "../words";
import { Connection } from "./connection.svelte";
import { Jobs } from "./jobs.svelte";
import { ModelList } from "./models.svelte";
import { NeedsList } from "./needs.svelte";
import { Moves } from "./moves.svelte";
import { OpenSession, type News } from "./open-session.svelte";
import { Post, readNewFolder, writeNewFolder } from "./post.svelte";
import { Picking } from "./picking.svelte";
import { Prefs } from "./prefs.svelte";
import { readRoute, takeCode, writeRoute, type Route } from "./route";
import { Sessions } from "./sessions.svelte";
import { showBadge } from "./badge";
import { Toasts } from "./toasts.svelte";

const openedMax = 4;

/** What the composer is to take in. It always takes the focus, too. */
export interface ComposerRequest {
  text?: string;
  files?: LocalFile[];
  /** The path of a file in the workspace. */
  mention?: string;
  /** A message that could not be sent. */
  unsent?: Unsent;
}

/** What is on the screen: the address, the session that is open, and what lies over them. */
export class Page {
  readonly api: Api;
  readonly prefs = new Prefs();
  readonly toasts = new Toasts();
  readonly models: ModelList;
  readonly sessions: Sessions;
  readonly jobs: Jobs;
  readonly needs: NeedsList;
  readonly connection: Connection;
  readonly post: Post;
  readonly moves = new Moves();
  readonly picking = new Picking();

  route = $state.raw<Route>(readRoute(location.hash));
  opened = $state.raw<OpenSession | null>(null);
  /** Why the server can store nothing at the moment, as it says. */
  trouble = $state.raw<Trouble | null>(null);
  overlay = $state<"none" | "palette" | "keys" | "folder" | "imported">("none");
  /** The session whose folder is being chosen; null: the one that the next message begins. */
  choosingFolderOf: Session | null = null;
  /** What else a folder is being chosen for, if not for a session: what is said, and who takes it or says what is wrong. */
  folderFor: { lead: string; take: (path: string) => Promise<string> } | null = null;
  /** What the last import of another system's conversations said. */
  imported: ImportedHistory | null = null;
  /** The folder that the session of the next message is to work in; null: one of its own. */
  newFolder = $state<string | null>(readNewFolder());
  isDrawerOpen = $state(false);
  /** What a screen reader is to say. */
  announcement = $state("");
  /** The turn that the panel shows; null: the last one. */
  shownTurn = $state<string | null>(null);
  now = $state(Date.now());
  composerRequest = $state.raw<ComposerRequest | null>(null);
  /** The session that a message has just made, and that is shown for this reason only. */
  made: string | null = null;
  /** The session that is written for and does not exist yet, where the user asked for another one than before. */
  private place: string | null = null;
  /** Sessions that are followed, the one opened last at the end. */
  private readonly followed = new Map<string, OpenSession>();
  private readonly typed = { isNew: false, at: -Infinity };
  private readonly newsListeners = new Set<(events: readonly ListEvent[]) => void>();

  constructor(root: string) {
    const complain = (error: unknown) => this.toasts.complain(error);
    this.api = new Api(root);
    this.models = new ModelList(this.api, complain);
    this.sessions = new Sessions(this.api, complain, () => this.setTitle());
    this.jobs = new Jobs(this.api, complain);
    this.needs = new NeedsList(this.api, () => this.setTitle());
    this.post = new Post(
      this.api,
      new Disk(),
      (entry, session) => this.sessionMade(entry, session),
      (entry, accepted) => {
        this.followed.get(entry.session ?? "")?.accepted(entry, accepted);
        if (this.post.takeStopped(entry)) void this.attempt(() => this.api.post(`api/turns/${accepted.turn.id}/cancel`));
      },
      complain,
    );
    this.connection = new Connection(root, this.api, {
      onEvents: (session, events) => {
        this.followed.get(session)?.hear(events);
        if (events.some((event) => event.event.kind === "job.started" || event.event.kind === "job.ended")) this.jobs.look();
      },
      onList: (events) => this.listChanged(events),
      onReconnected: () => this.catchUp(),
      onSignedIn: () => this.readAll(),
    });
    addEventListener("hashchange", () => this.routeChanged());
    addEventListener("keydown", () => Object.assign(this.typed, { isNew: true, at: performance.now() }), true);
    // What arrived while the page was hidden is read once it is in view.
    document.addEventListener("visibilitychange", () => {
      this.markRead();
      this.jobs.shown();
    });
    setInterval(() => (this.now = Date.now()), 1_000);
    void this.start();
  }

  private async start(): Promise<void> {
    const code = takeCode();
    this.routeChanged();
    // A code that is no longer good changes nothing: if one is needed, the next request asks for it.
    if (code) await this.connection.enter(code).catch(() => undefined);
    void this.post.sender.restore();
    await Promise.all([this.sessions.read(), this.models.read()]);
    void this.jobs.read();
    await this.needs.read();
  }

  private async catchUp(): Promise<void> {
    await this.post.sender.retryAll();
    if (this.opened && this.opened.status !== "ready") void this.opened.load();
    if (!this.sessions.isRead) void this.sessions.read();
    this.jobs.look();
    this.needs.readSoon();
  }

  private async readAll(): Promise<void> {
    await Promise.all([this.sessions.read(), this.models.read(), this.needs.read()]);
    await this.post.sender.retryAll();
    if (this.opened && this.opened.status !== "ready") await this.opened.load();
  }

  // --- the list -------------------------------------------------------------------------------

  private listChanged(events: ListEvent[]): void {
    this.needs.hear(events, (id) => this.sessions.find(id));
    this.jobs.hear(events);
    for (const listener of this.newsListeners) listener(events);
    for (const row of this.sessions.hear(events)) this.notify(row);
    for (const event of events) {
      if (event.kind === "sessions.snapshot" || event.kind.startsWith("store.")) this.storeChanged(event.trouble ?? null);
      if (event.kind === "session.deleted" && event.session_id) this.sessionDeleted(event.session_id);
    }
    this.markRead();
  }

  /** Tell a view what the list's stream says. Returns how to stop it. */
  onNews(listener: (events: readonly ListEvent[]) => void): () => void {
    this.newsListeners.add(listener);
    return () => void this.newsListeners.delete(listener);
  }

  private storeChanged(trouble: Trouble | null): void {
    const was = this.trouble;
    this.trouble = trouble;
    if (trouble && !was) this.announcement = words.notSaving(words.troubles[trouble.code] ?? trouble.message);
    // What could not be sent meanwhile is tried again as soon as it can be kept.
    if (was && !trouble) void this.post.sender.retryAll();
  }

  private sessionMade(entry: Unsent, session: Session): void {
    this.sessions.put(session);
    // Written for another session than the one that the user has turned to.
    if (this.place && this.place !== entry.place) return;
    this.place = null;
    this.setNewFolder(null);
    if (this.route.at !== "new" && this.opened?.status !== "gone") return;
    this.go({ at: "session", id: session.id }, true);
    this.made = session.id;
  }

  private sessionDeleted(id: string): void {
    this.close(id);
    void this.post.sender.orphan(id, words.sessionGone);
    if (this.route.at === "session" && this.route.id === id) this.go({ at: "new" }, true);
  }

  private notify(session: Session): void {
    if (document.visibilityState === "visible" || !this.prefs.notifies) return;
    if (typeof Notification !== "function" || Notification.permission !== "granted") return;
    const title = this.titleOf(session);
    const text = needsYou(session) ? words.notifyAsk(title) : words.notifyDone(title);
    const note = new Notification(words.appName, { body: text, tag: `answer:${session.id}` });
    note.onclick = () => {
      focus();
      this.go({ at: "session", id: session.id });
      note.close();
    };
  }

  /** A session is shown, or a new one: its keys hold. */
  get isInSession(): boolean {
    return this.route.at === "session" || this.route.at === "new";
  }

  /** The row of the session that is shown. */
  get session(): Session | null {
    return this.route.at === "session" ? this.sessions.find(this.route.id) : null;
  }

  /** It was deleted, here or in another tab, and has not come back. */
  isGone(id: string): boolean {
    return this.followed.get(id)?.status === "gone" || this.sessions.isDeleted(id);
  }

  titleOf(session: Session): string {
    return titleOf(session) || words.untitled;
  }

  /** The name of a session of which an answer brings only its id and its title. */
  nameOf(id: string, title?: string): string {
    const row = this.sessions.find(id);
    return title || (row ? this.titleOf(row) : words.untitled);
  }

  private markRead(): void {
    this.sessions.markRead(this.session);
  }

  private setTitle(): void {
    const places: Partial<Record<Route["at"], string>> = { settings: words.settings, jobs: words.jobs, needs: words.needsYou, schedules: words.schedules };
    const name = places[this.route.at] ?? ((this.session && titleOf(this.session)) || words.appName);
    const { count } = this.needs;
    // Where nothing needs the user the title says how many answers are new.
    const waiting = count || this.sessions.rows.filter((row) => row.is_unread).length;
    document.title = waiting ? `(${waiting}) ${name}` : name;
    showBadge(count);
  }

  // --- places ---------------------------------------------------------------------------------

  go(route: Route, isReplacing = false): void {
    const hash = writeRoute(route);
    this.isDrawerOpen = false;
    if (isReplacing) {
      history.replaceState(null, "", hash);
      this.routeChanged();
    } else if (location.hash !== hash) {
      location.hash = hash;
    } else {
      this.routeChanged();
    }
  }

  /** The address names a message that was looked for; a reload would go back to it. */
  leaveMessage(): void {
    if (this.route.at !== "session" || !this.route.message) return;
    this.route = { at: "session", id: this.route.id };
    history.replaceState(null, "", writeRoute(this.route));
  }

  leaveSettings(): void {
    this.go(this.leaving ? { at: "session", id: this.leaving } : { at: "new" });
  }

  /** The next session that waits for the user, after the one that is open. */
  nextAsk(): void {
    const { waiting } = this.sessions;
    if (!waiting.length) return;
    const at = waiting.findIndex((row) => row.id === this.session?.id);
    this.go({ at: "session", id: waiting[(at + 1) % waiting.length]!.id });
  }

  private routeChanged(): void {
    const before = this.opened?.id;
    this.route = readRoute(location.hash);
    this.made = null;
    this.shownTurn = null;
    this.isDrawerOpen = false;
    if (this.route.at === "session") this.open(this.route.id);
    else if (this.route.at === "new") this.opened = null;
    if (before && this.opened?.id !== before) this.prefs.closeSheet();
    this.setTitle();
  }

  private open(id: string): void {
    let opened = this.followed.get(id);
    this.followed.delete(id);
    if (!opened) {
      opened = new OpenSession(id, this.api, this.connection.link, (from, news) => this.announce(from, news), this.typed);
      void opened.load();
      void this.sessions.readOne(id);
    }
    this.followed.set(id, opened);
    for (const old of this.followed.keys()) {
      if (this.followed.size <= openedMax) break;
      this.close(old);
    }
    this.opened = opened;
    this.markRead();
  }

  /** No longer followed, and not what a new session leaves behind. */
  private close(id: string): void {
    this.followed.delete(id);
    this.connection.link.drop(id);
  }

  private announce(from: OpenSession, news: News): void {
    if (from !== this.opened) return;
    const texts: Record<News["what"], string> = {
      started: words.announceStarted,
      completed: words.announceDone,
      failed: words.announceFailed,
      cancelled: words.stopped,
      interrupted: words.announceInterrupted,
      waiting: words.announceWaiting,
    };
    this.announcement = texts[news.what];
  }

  // --- writing --------------------------------------------------------------------------------

  /** Start over: the session that is left is named, so that memory takes it in. */
  newSession(text = ""): void {
    this.place = freshKey();
    this.setNewFolder(null);
    this.go({ at: "new" });
    // Not when the browser gets to it: the words are not for the session that is left.
    this.routeChanged();
    this.compose({ text });
  }

  /** Where a message goes that begins a session: with those that were written before it for the same one. */
  get beginning(): { session: null; place: string; leaving: string | null; project: string | null } {
    const waiting = this.post.of(null).findLast((entry) => !entry.problem && entry.place && (!this.place || entry.place === this.place));
    return {
      session: null,
      place: waiting?.place ?? this.place ?? freshKey(),
      leaving: waiting ? waiting.leaving : this.leaving,
      project: waiting ? (waiting.project ?? null) : this.newFolder,
    };
  }

  /** The session that a new one leaves behind: the one opened last. */
  get leaving(): string | null {
    return [...this.followed.values()].filter((opened) => opened.status !== "gone").pop()?.id ?? null;
  }

  /** Give the composer the focus, and something to take in. */
  compose(request: ComposerRequest = {}): void {
    this.composerRequest = request;
  }

  /** Ask for the rest of an answer that ended early. */
  goOn(session: string): Promise<unknown> {
    const opened = this.followed.get(session);
    if (opened) opened.said += 1;
    return this.post.sender.send({ session, leaving: null, text: words.continuePrompt, files: [], model: null, profile: null, whenBusy: "queue" });
  }

  /** There is a turn to stop, or there will be one as soon as the server has the message. */
  get canStop(): boolean {
    return !!this.opened?.isBusy || !!this.post.sendingOf(this.opened?.id ?? null);
  }

  /** Stop the turn. With messages behind it, that would start the next one at once: ask first. */
  stop(): void {
    const { opened } = this;
    const sending = opened?.isBusy ? undefined : this.post.sendingOf(opened?.id ?? null);
    if (sending) return this.post.stopOnceAccepted(sending);
    if (!opened) return;
    if (opened.waiting && opened.current) opened.askingStop = opened.current.id;
    else void this.attempt(() => opened.stop());
  }

  /** Stop the turn and take back what waits behind it. */
  async stopAll(opened: OpenSession): Promise<void> {
    this.compose(await opened.stopAll());
  }

  // --- folders --------------------------------------------------------------------------------

  chooseFolderFor(lead: string, take: (path: string) => Promise<string>): void {
    this.chooseFolder(null);
    this.folderFor = { lead, take };
  }

  chooseFolder(session: Session | null): void {
    this.folderFor = null;
    this.choosingFolderOf = session;
    this.overlay = "folder";
  }

  /** Let the session, or the next one, work in this folder; null: in one of its own. Returns what is wrong with it. */
  async useFolder(session: Session | null, path: string | null): Promise<string> {
    if (!session) {
      this.setNewFolder(path);
      this.compose();
      return "";
    }
    try {
      this.sessions.put(await this.api.patch<Session>(`api/sessions/${session.id}`, { body: { project: path } }));
    } catch (error) {
      return explain(error, words.serverAway);
    }
    this.toasts.show(path ? words.folderChosen(path) : words.folderOwn);
    return "";
  }

  private setNewFolder(path: string | null): void {
    this.newFolder = path;
    writeNewFolder(path);
  }

  // --- sessions -------------------------------------------------------------------------------

  async remove(session: Session): Promise<void> {
    this.sessions.hide(session.id);
    this.close(session.id);
    if (this.route.at === "session" && this.route.id === session.id) this.go({ at: "new" });
    try {
      await this.api.delete(`api/sessions/${session.id}`);
      this.toasts.show(words.deleted, { label: words.undoNow, run: () => void this.attempt(() => this.restore(session)) });
      await this.keepFocus();
    } catch (error) {
      this.sessions.unhide(session.id);
      this.toasts.complain(error);
    }
  }

  private async restore(session: Session): Promise<void> {
    this.sessions.revive(await this.api.post<Session>(`api/sessions/${session.id}/restore`));
    this.go({ at: "session", id: session.id });
  }

  /** Archive the session, or take it back out. It is gone from the list then: say so, and offer to undo it. */
  async archive(session: Session, isArchived: boolean): Promise<void> {
    if (!(await this.sessions.change(session, { archived: isArchived }))) return;
    const undo = () => void this.sessions.change(session, { archived: !isArchived });
    this.toasts.show(isArchived ? words.archived : words.unarchived, { label: words.undoNow, run: undo });
    await this.keepFocus();
  }

  /** A row that had the focus is gone: the keys go to the composer, and from there Tab leads to the notice. */
  private async keepFocus(): Promise<void> {
    await tick();
    const isLost = document.activeElement === document.body;
    // On a phone nothing has the focus as a rule, and the composer would bring up the keyboard.
    if (isLost && matchMedia("(hover: hover)").matches) this.compose();
  }

  async duplicate(session: Session): Promise<void> {
    const copy = await this.api.post<Session>(`api/sessions/${session.id}/branch`, { key: freshKey() });
    this.sessions.put(copy);
    this.go({ at: "session", id: copy.id });
  }

  /** `within`: how many at most, who wrote it, when, in sessions with which tag. */
  search(query: string, signal: AbortSignal, within: Record<string, string | number> = {}): Promise<Hits> {
    return this.api.get("api/search", { query: { q: query, ...within }, signal });
  }

  /** Sessions with these words in the title or a tag, also archived ones. */
  async sessionsNamed(words: string, signal: AbortSignal): Promise<Session[]> {
    const lists = await Promise.all(
      ["false", "true"].map((archived) => this.api.get<{ items: Session[] }>("api/sessions", { query: { q: words.slice(0, 200), archived, limit: 6 }, signal })),
    );
    return lists.flatMap((list) => list.items);
  }

  // --- the user -------------------------------------------------------------------------------

  async copyConversation(): Promise<void> {
    const turns = this.opened?.conversation?.turns ?? [];
    const text = turns
      .map((turn) => `${words.you}: ${textOf(turn.asked)}\n\n${words.agent}: ${answerOf(turn)}`)
      .join("\n\n");
    await this.copy(text);
  }

  /** `navigator.clipboard` does not exist on plain HTTP; the old way does. */
  async copy(text: string): Promise<void> {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
    } else {
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "vh";
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    this.toasts.show(words.copied);
  }

  /** Do it, and say so if it could not be done. */
  async attempt(act: () => Promise<unknown>): Promise<void> {
    try {
      await act();
    } catch (error) {
      this.toasts.complain(error);
    }
  }
}

const key = Symbol("page");

export function providePage(page: Page): void {
  setContext(key, page);
}

export function usePage(): Page {
  return getContext<Page>(key);
}
