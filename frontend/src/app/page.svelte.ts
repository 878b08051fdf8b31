import { getContext, setContext } from "svelte";
import { Api, Away, Problem, explain, freshKey } from "../api/client";
import type { Asks, Hits, ListEvent, ModelLine, Models, Profile, Profiles, Session, Trouble } from "../api/types";
import { Disk } from "../keep/disk";
import type { LocalFile, Unsent } from "../keep/unsent";
import * as lists from "../state/list";
import { answerOf, textOf } from "../state/items";
import { words } from "../words";
import type { LinkState } from "../wire/follower";
import { Link } from "../wire/link";
import { Post } from "./post.svelte";
import { Prefs } from "./prefs.svelte";
import { readRoute, takeCode, writeRoute, type Route } from "./route";
import { OpenSession, type News } from "./open-session.svelte";

export interface Toast {
  id: number;
  text: string;
  action?: { label: string; run: () => void };
}

const openedMax = 4;
const listPage = 100;
const pinnedMax = 200;
const chipDelayMs = 1_000;

/** Everything that is on the screen, and what can be done about it. */
export class Page {
  readonly api: Api;
  readonly prefs = new Prefs();
  readonly post: Post;
  readonly link: Link;

  route = $state.raw<Route>(readRoute(location.hash));
  list = $state.raw<lists.SessionList>(lists.emptyList);
  listCursor = $state<string | null>(null);
  isListRead = $state(false);
  /** Why the server can store nothing at the moment, as it says. */
  trouble = $state.raw<Trouble | null>(null);
  opened = $state.raw<OpenSession | null>(null);
  linkState = $state<LinkState>("connecting");
  isReconnecting = $state(false);
  isSignedOut = $state(false);
  /** What the sign-in asks for. */
  wants = $state<"password" | "token">("password");
  isOutdated = $state(false);
  overlay = $state<"none" | "palette" | "keys">("none");
  isDrawerOpen = $state(false);
  toasts = $state.raw<readonly Toast[]>([]);
  announcement = $state("");
  models = $state.raw<ModelLine[]>([]);
  defaultModel = $state<string | null>(null);
  areModelsRead = $state(false);
  profiles = $state.raw<Profile[]>([]);
  /** What each waiting session waits for: approval, question or doubt. */
  topics = $state.raw<ReadonlyMap<string, string>>(new Map());
  /** The turn that the panel shows; null: the last one. */
  shownTurn = $state<string | null>(null);
  now = $state(Date.now());
  /** Asked of the composer: put this text in, or take the focus. */
  wish = $state.raw<{ text?: string; files?: LocalFile[]; mention?: string; unsent?: Unsent; focus?: boolean; id: number } | null>(null);
  /** The session that a message has just made, and that is shown for this reason only. */
  made: string | null = null;
  /** The session that is written for and does not exist yet, where the user asked for another one than before. */
  private place: string | null = null;
  private readonly sessions = new Map<string, OpenSession>();
  private readonly typed = { isNew: false };
  private marking = false;
  private topicsFor = "";
  private toastCount = 0;
  private chipTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(root: string) {
    this.api = new Api(root);
    this.api.onSignedOut = (wants) => {
      this.isSignedOut = true;
      this.wants = wants;
    };
    this.post = new Post(
      this.api,
      new Disk(),
      (entry, session) => {
        this.list = lists.put(this.list, [session]);
        // Written for another session than the one that the user has turned to.
        if (this.place && this.place !== entry.place) return;
        this.place = null;
        if (this.route.at !== "new" && this.opened?.status !== "gone") return;
        this.go({ at: "session", id: session.id }, true);
        this.made = session.id;
      },
      (entry, accepted) => this.sessions.get(entry.session ?? "")?.accepted(entry, accepted),
      (problem) => this.complain(problem),
    );
    this.link = new Link(root, {
      onEvents: (session, events) => this.sessions.get(session)?.hear(events),
      onList: (events) => this.heardList(events),
      onState: (state) => this.linked(state),
    });
    addEventListener("hashchange", () => this.routed());
    addEventListener("keydown", () => (this.typed.isNew = true), true);
    // What came while nobody looked is read when somebody does.
    document.addEventListener("visibilitychange", () => this.markRead());
    setInterval(() => (this.now = Date.now()), 1_000);
    void this.start();
  }

  private async start(): Promise<void> {
    const code = takeCode();
    this.routed();
    // A code that is no longer good changes nothing: who needs one is asked by what comes next.
    if (code) await this.api.post("api/access", { body: { token: code } }).then(() => this.entered(), () => undefined);
    void this.post.sender.restore();
    await Promise.all([this.readList(), this.readModels()]);
  }

  // --- the connection -------------------------------------------------------------------------

  private linked(state: LinkState): void {
    const was = this.linkState;
    this.linkState = state;
    clearTimeout(this.chipTimer);
    if (state === "open") {
      this.isReconnecting = false;
      if (was !== "open") void this.reconnected();
    } else if (state === "signed_out") {
      this.isSignedOut = true;
    } else {
      this.chipTimer = setTimeout(() => (this.isReconnecting = true), chipDelayMs);
    }
  }

  private async reconnected(): Promise<void> {
    await this.post.sender.retryAll();
    if (this.opened && this.opened.status !== "ready") void this.opened.load();
    if (!this.isListRead) void this.readList();
    void this.checkBuild();
  }

  /** After an upgrade an old tab offers to reload; it never reloads by itself, a draft may be open. */
  private async checkBuild(): Promise<void> {
    try {
      const response = await fetch(this.api.address("./"), { cache: "no-cache", credentials: "same-origin" });
      const html = await response.text();
      const own = document.querySelector<HTMLScriptElement>('script[type="module"][src*="assets/"]');
      const name = own?.src.split("/").pop();
      if (response.ok && name && html.includes("assets/") && !html.includes(name)) this.isOutdated = true;
    } catch {
      // Not reachable after all; the stream will say so.
    }
  }

  /** With the password, or with the access token of a server that has none. */
  async signIn(secret: string): Promise<void> {
    if (this.wants === "token") await this.api.post("api/access", { body: { token: secret } });
    else await this.api.post("api/signin", { body: { password: secret } });
    this.entered();
    await Promise.all([this.readList(), this.readModels()]);
    await this.post.sender.retryAll();
    if (this.opened && this.opened.status !== "ready") await this.opened.load();
  }

  private entered(): void {
    this.isSignedOut = false;
    this.link.poke();
  }

  async signOut(): Promise<void> {
    await this.api.post("api/signout");
    location.reload();
  }

  // --- the list -------------------------------------------------------------------------------

  async readList(): Promise<void> {
    try {
      // A pinned session stands at the top, however long ago it was used.
      const [page, pinned] = await Promise.all([this.readRows({ limit: listPage }), this.readRows({ pinned: "true", limit: pinnedMax })]);
      this.list = lists.put(this.list, [...page.items, ...pinned.items]);
      this.listCursor = page.cursor ?? null;
      this.isListRead = true;
      void this.readTopics();
    } catch (error) {
      if (!(error instanceof Away)) this.complain(error);
    }
  }

  async moreList(): Promise<void> {
    const cursor = this.listCursor;
    if (!cursor) return;
    this.listCursor = null;
    try {
      const page = await this.readRows({ limit: listPage, cursor });
      this.list = lists.put(this.list, page.items);
      this.listCursor = page.cursor ?? null;
    } catch (error) {
      this.listCursor = cursor;
      throw error;
    }
  }

  private readRows(query: Record<string, string | number>): Promise<{ items: Session[]; cursor?: string | null }> {
    return this.api.get("api/sessions", { query });
  }

  private heardList(events: ListEvent[]): void {
    const before = this.list;
    let list = before;
    for (const event of events) list = lists.hear(list, event);
    this.list = list;
    for (const row of lists.calling(before, list)) this.notify(row);
    for (const event of events) {
      if (event.kind === "sessions.snapshot" || event.kind.startsWith("store.")) this.troubled(event.trouble ?? null);
      if (event.kind === "session.deleted") this.forget(event);
    }
    this.title();
    this.markRead();
    void this.readTopics();
  }

  private troubled(trouble: Trouble | null): void {
    const was = this.trouble;
    this.trouble = trouble;
    if (trouble && !was) this.announcement = words.notSaving(words.troubles[trouble.code] ?? trouble.message);
    // What could not be sent meanwhile is tried again as soon as it can be kept.
    if (was && !trouble) void this.post.sender.retryAll();
  }

  private async readTopics(): Promise<void> {
    const waiting = this.rows.filter(lists.needsYou).map((row) => row.id).sort().join();
    if (waiting === this.topicsFor) return;
    this.topicsFor = waiting;
    if (!waiting) return;
    try {
      const told = await this.api.get<Asks>("api/approvals");
      this.topics = new Map(told.items.map((ask) => [ask.session_id, ask.topic]));
    } catch (error) {
      // The mark then says "Approve" for every kind; the session itself tells them apart.
      if (!(error instanceof Error)) throw error;
    }
  }

  private forget(event: ListEvent): void {
    const id = event.session_id;
    if (!id) return;
    this.close(id);
    void this.post.sender.orphan(id, words.sessionGone);
    if (this.route.at === "session" && this.route.id === id) this.go({ at: "new" }, true);
  }

  private notify(session: Session): void {
    if (document.visibilityState === "visible" || !this.prefs.notifies) return;
    if (typeof Notification !== "function" || Notification.permission !== "granted") return;
    const title = this.titleOf(session);
    const text = lists.needsYou(session) ? words.notifyAsk(title) : words.notifyDone(title);
    const note = new Notification(words.appName, { body: text, tag: session.id });
    note.onclick = () => {
      focus();
      this.go({ at: "session", id: session.id });
      note.close();
    };
  }

  get rows(): Session[] {
    return [...this.list.rows.values()].filter((row) => !this.list.hidden.has(row.id));
  }

  /** It was deleted, here or in another tab, and has not come back. */
  isGone(id: string): boolean {
    return this.sessions.get(id)?.status === "gone" || this.list.deleted.has(id);
  }

  get session(): Session | null {
    return this.route.at === "session" ? (this.list.rows.get(this.route.id) ?? null) : null;
  }

  /** Until a session has a title it is called by its first words, which stay, not by its last, which change. */
  titleOf(session: Session): string {
    if (session.title) return session.title;
    const known = this.sessions.get(session.id)?.conversation;
    const first = known && !known.before ? textOf(known.turns[0]?.asked ?? null) : "";
    return first.split("\n")[0] || session.preview || words.untitled;
  }

  /** The next session that waits for the user, after the one that is open. */
  nextAsk(): void {
    const waiting = this.rows.filter(lists.needsYou).sort((left, right) => right.updated_at - left.updated_at);
    if (!waiting.length) return;
    const at = waiting.findIndex((row) => row.id === this.session?.id);
    this.go({ at: "session", id: waiting[(at + 1) % waiting.length]!.id });
  }

  /** Stop the turn. With messages behind it, that would start the next one at once: ask first. */
  stop(): void {
    const { opened } = this;
    if (!opened) return;
    if (opened.conversation?.queue.length) opened.isAskingStop = true;
    else void this.attempt(() => opened.stop());
  }

  /** Stop the turn and take back what waits behind it. */
  async stopAll(opened: OpenSession): Promise<void> {
    const { text, files } = await opened.stopAll();
    this.wish = { text, files, focus: true, id: Date.now() };
  }

  /** Put a file's path into the message that is being written. */
  mention(path: string): void {
    this.wish = { mention: path, focus: true, id: Date.now() };
  }

  /** Ask for the rest of an answer that ended early. */
  goOn(session: string): Promise<unknown> {
    const opened = this.sessions.get(session);
    if (opened) opened.said += 1;
    return this.post.sender.send({ session, leaving: null, text: words.continuePrompt, files: [], model: null, profile: null, whenBusy: "queue" });
  }

  // --- places ---------------------------------------------------------------------------------

  go(route: Route, isReplacing = false): void {
    const hash = writeRoute(route);
    this.isDrawerOpen = false;
    if (isReplacing) {
      history.replaceState(null, "", hash);
      this.routed();
    } else if (location.hash !== hash) {
      location.hash = hash;
    } else {
      this.routed();
    }
  }

  /** The address names a message that was looked for; a reload would go back to it. */
  leaveMessage(): void {
    if (this.route.at !== "session" || !this.route.message) return;
    this.route = { at: "session", id: this.route.id };
    history.replaceState(null, "", writeRoute(this.route));
  }

  private routed(): void {
    this.route = readRoute(location.hash);
    this.made = null;
    this.shownTurn = null;
    this.isDrawerOpen = false;
    if (this.route.at === "session") this.open(this.route.id);
    else if (this.route.at === "new") this.opened = null;
    this.title();
  }

  private open(id: string): void {
    let opened = this.sessions.get(id);
    this.sessions.delete(id);
    if (!opened) {
      opened = new OpenSession(id, this.api, this.link, (from, news) => this.heardNews(from, news), this.typed);
      void opened.load();
      void this.readSession(id);
    }
    this.sessions.set(id, opened);
    for (const old of this.sessions.keys()) {
      if (this.sessions.size <= openedMax) break;
      this.close(old);
    }
    this.opened = opened;
    this.markRead();
  }

  /** No longer followed, and not what a new session leaves behind. */
  private close(id: string): void {
    this.sessions.delete(id);
    this.link.drop(id);
  }

  private async readSession(id: string): Promise<void> {
    if (this.list.rows.has(id)) return;
    try {
      // Read first: a list taken before the answer lacks what came in the meantime.
      const row = await this.api.get<Session>(`api/sessions/${id}`);
      this.list = lists.put(this.list, [row]);
      this.title();
    } catch (error) {
      // The conversation itself says that it is gone or that the server is away.
      if (!(error instanceof Error)) throw error;
    }
  }

  private markRead(): void {
    const row = this.session;
    if (!row?.is_unread || this.marking || document.visibilityState !== "visible") return;
    this.marking = true;
    const seen = () => (this.marking = false);
    // If it cannot be said now, it stays unread for others; nothing else depends on it.
    this.api.patch<Session>(`api/sessions/${row.id}`, { body: { is_unread: false } }).then((now) => {
      seen();
      this.list = lists.put(this.list, [now]);
      this.title();
    }, seen);
  }

  private title(): void {
    const name = this.route.at === "settings" ? words.settings : this.session?.title || words.appName;
    const waiting = this.rows.filter((row) => lists.needsYou(row) || row.is_unread).length;
    document.title = waiting ? `(${waiting}) ${name}` : name;
  }

  /** Start over: the session that is left is named, so that memory takes it in. */
  newSession(text = ""): void {
    this.place = freshKey();
    this.go({ at: "new" });
    // Not when the browser gets to it: the words are not for the session that is left.
    this.routed();
    this.wish = { text, focus: true, id: Date.now() };
  }

  /** Where a message goes that begins a session: with those that were written before it for the same one. */
  get beginning(): { session: null; place: string; leaving: string | null } {
    const waiting = this.post.of(null).findLast((entry) => !entry.problem && entry.place && (!this.place || entry.place === this.place));
    return { session: null, place: waiting?.place ?? this.place ?? freshKey(), leaving: waiting ? waiting.leaving : this.leaving };
  }

  /** The session that a new one leaves behind: the one opened last. */
  get leaving(): string | null {
    return [...this.sessions.values()].filter((opened) => opened.status !== "gone").pop()?.id ?? null;
  }

  leaveSettings(): void {
    this.go(this.leaving ? { at: "session", id: this.leaving } : { at: "new" });
  }

  compose(text: string): void {
    this.wish = { text, focus: true, id: Date.now() };
  }

  focusComposer(): void {
    this.wish = { focus: true, id: Date.now() };
  }

  /** Take a message that could not be sent back into what is being written. */
  rewrite(unsent: Unsent): void {
    this.wish = { unsent, focus: true, id: Date.now() };
  }

  // --- sessions -------------------------------------------------------------------------------

  async change(session: Session, change: Record<string, unknown>): Promise<void> {
    try {
      const row = await this.api.patch<Session>(`api/sessions/${session.id}`, { body: change });
      this.list = lists.put(this.list, [row]);
      this.title();
    } catch (error) {
      this.complain(error);
    }
  }

  async remove(session: Session): Promise<void> {
    this.list = lists.hide(this.list, session.id, true);
    this.close(session.id);
    if (this.route.at === "session" && this.route.id === session.id) this.go({ at: "new" });
    try {
      await this.api.delete(`api/sessions/${session.id}`);
      this.toast(words.deleted, {
        label: words.undoNow,
        run: () => void this.restore(session),
      });
    } catch (error) {
      this.list = lists.hide(this.list, session.id, false);
      this.complain(error);
    }
  }

  private async restore(session: Session): Promise<void> {
    try {
      const row = await this.api.post<Session>(`api/sessions/${session.id}/restore`);
      this.list = lists.hide(lists.revive(this.list, [row]), session.id, false);
      this.go({ at: "session", id: session.id });
    } catch (error) {
      this.complain(error);
    }
  }

  async duplicate(session: Session): Promise<void> {
    await this.attempt(async () => {
      const copy = await this.api.post<Session>(`api/sessions/${session.id}/branch`, { key: freshKey() });
      this.list = lists.put(this.list, [copy]);
      this.go({ at: "session", id: copy.id });
    });
  }

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
    this.toast(words.copied);
  }

  // --- models ---------------------------------------------------------------------------------

  async readProfiles(): Promise<void> {
    this.profiles = (await this.api.get<Profiles>("api/profiles")).profiles;
  }

  async readModels(): Promise<void> {
    try {
      const told = await this.api.get<Models>("api/models");
      this.models = told.models;
      this.defaultModel = told.default;
      this.areModelsRead = true;
    } catch (error) {
      if (!(error instanceof Away)) this.complain(error);
    }
  }

  modelLabel(name: string | null | undefined): string {
    const wanted = name ?? this.defaultModel;
    const known = this.models.find((model) => model.name === wanted);
    // A local model's note is its proper name; the rest are best known by their own.
    if (known?.size && known.note) return known.note.replace(/ \(.*\)$/, "");
    return wanted?.slice(wanted.indexOf(":") + 1) ?? words.defaultModel;
  }

  contextOf(name: string | null | undefined): number | null {
    const wanted = name ?? this.defaultModel;
    const known = this.models.find((model) => model.name === wanted);
    return known?.context_tokens ?? known?.prices?.context_tokens ?? null;
  }

  // --- words to the user ----------------------------------------------------------------------

  search(query: string, signal: AbortSignal): Promise<Hits> {
    return this.api.get("api/search", { query: { q: query, limit: 20 }, signal });
  }

  private heardNews(opened: OpenSession, news: News): void {
    if (opened === this.opened) {
      const told: Record<News["what"], string> = {
        started: words.announceStarted,
        completed: words.announceDone,
        failed: words.announceFailed,
        cancelled: words.stopped,
        interrupted: words.announceInterrupted,
        waiting: words.announceWaiting,
      };
      this.announcement = told[news.what];
    }
  }

  toast(text: string, action?: Toast["action"], isLong = !!action): void {
    this.toastCount += 1;
    const toast: Toast = action ? { id: this.toastCount, text, action } : { id: this.toastCount, text };
    this.toasts = [...this.toasts.slice(-2), toast];
    setTimeout(() => this.dropToast(toast.id), isLong ? 9_500 : 3_000);
  }

  dropToast(id: number): void {
    this.toasts = this.toasts.filter((toast) => toast.id !== id);
  }

  complain(error: unknown): void {
    // The sign-in dialog is over the page then, and says it better.
    if (error instanceof Problem && error.status === 401) return;
    this.toast(explain(error, words.serverAway), undefined, true);
  }

  /** Do it, and say so if it could not be done. */
  async attempt(act: () => Promise<unknown>): Promise<void> {
    try {
      await act();
    } catch (error) {
      this.complain(error);
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
