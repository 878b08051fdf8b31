import type { LocalFile } from "../keep/unsent";
import type { Post } from "./post.svelte";

const saveDelayMs = 250;

/** The message that is being written for a session. Every change is kept in this browser. */
export class Draft {
  text = $state("");
  files = $state.raw<LocalFile[]>([]);
  /** Null: for a session that does not exist yet. Undefined: nothing is shown so far. */
  private session: string | null | undefined;
  /** A tab writes only what was changed in it: one that was left behind must not put back what it still shows. */
  private isChanged = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly post: Post) {}

  /** Show the draft of a session. `comesAlong` decides by the session left whether its draft moves to one without any.
   *  Returns false if it is shown already. */
  show(session: string | null, comesAlong: (left: string | null) => boolean): boolean {
    if (session === this.session) return false;
    this.flush();
    const left = this.session;
    const kept = this.post.readDraft(session);
    this.session = session;
    if (left !== undefined && comesAlong(left) && !kept.text && !kept.files.length) {
      this.keep();
      this.post.writeDraft(left);
    } else {
      ({ text: this.text, files: this.files } = kept);
    }
    return true;
  }

  /** Keep it soon: after the next few keys. */
  save(): void {
    this.isChanged = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.flush(), saveDelayMs);
  }

  /** Keep what was changed, now. */
  flush(): void {
    clearTimeout(this.timer);
    if (this.session === undefined || !this.isChanged) return;
    this.isChanged = false;
    this.post.writeDraft(this.session, this.text, this.files);
  }

  keep(): void {
    this.isChanged = true;
    this.flush();
  }

  /** Empty it on the screen. The browser keeps what it has until `sent` or `keep`. */
  empty(): void {
    this.text = "";
    this.files = [];
    clearTimeout(this.timer);
    this.isChanged = false;
  }

  /** The message that this session's draft was is kept elsewhere now. */
  sent(session: string | null): void {
    if (session === this.session) this.keep();
    else this.post.writeDraft(session);
  }

  /** Another tab has written in this place of the browser's storage. */
  readAgain(place: string | null): void {
    if (this.session === undefined || this.isChanged || !this.post.isDraftOf(this.session, place)) return;
    ({ text: this.text, files: this.files } = this.post.readDraft(this.session));
  }
}
