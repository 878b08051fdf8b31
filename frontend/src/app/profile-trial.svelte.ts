import { explain, type Api } from "../api/client";
import type { MessagesPage, SessionEvent, TrialBegun } from "../api/types";
import * as conv from "../state/conversation";
import { isEnded, type TurnView } from "../state/items";
import { Follower } from "../wire/follower";
import { words } from "../words";
import { Answers } from "./answers.svelte";
import type { ProfileDraft } from "./profiles.svelte";

/** One message with a profile that is not saved, in a session of which nothing is kept. */
export class ProfileTrial {
  session = $state("");
  isBusy = $state(false);
  problem = $state("");
  readonly answers: Answers;
  private conversation = $state.raw<conv.Conversation | null>(null);
  private follower: Follower | null = null;

  constructor(private readonly api: Api) {
    this.answers = new Answers(api);
  }

  get turn(): TurnView | null {
    return this.conversation?.turns.at(-1) ?? null;
  }

  get isOver(): boolean {
    return !!this.turn && isEnded(this.turn.state);
  }

  async begin(name: string, draft: ProfileDraft, text: string): Promise<void> {
    this.isBusy = true;
    this.problem = "";
    try {
      await this.end();
      const begun = await this.api.post<TrialBegun>("api/profile-trials", { body: { ...draft, name, text } });
      this.session = begun.session_id;
      const page = await this.api.get<MessagesPage>(`api/sessions/${begun.session_id}/messages`, { query: { limit: 20 } });
      this.conversation = conv.open(begun.session_id, page);
      this.follow(begun.session_id, conv.replayFrom(page));
    } catch (error) {
      this.problem = explain(error, words.serverAway);
    } finally {
      this.isBusy = false;
    }
  }

  /** Delete the trial. What nobody deletes goes by itself after an hour. */
  async end(): Promise<void> {
    this.follower?.stop();
    this.follower = null;
    const { session } = this;
    this.session = "";
    this.conversation = null;
    if (session) await this.api.delete(`api/profile-trials/${session}`);
  }

  private follow(id: string, from: number): void {
    const follower = new Follower({
      fetch: (...given) => fetch(...given),
      address: (sessions) => this.api.address("api/events", { sessions: sessions.join(",") }),
      onFrames: (frames) => {
        for (const frame of frames) {
          const event = JSON.parse(frame.data) as SessionEvent;
          if (event.session_id !== id || !this.conversation || event.position === undefined) continue;
          this.conversation = conv.apply(this.conversation, event);
          follower.advance(id, event.position);
        }
      },
      onState: () => undefined,
      random: Math.random,
    });
    this.follower = follower;
    follower.start(new Map([[id, from]]));
  }
}
