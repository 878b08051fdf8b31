/** The values that travel between server and page. Absent means default, as the server leaves defaults out. */

export type TurnState = "queued" | "running" | "waiting" | "completed" | "cancelled" | "failed" | "interrupted";
export type Role = "user" | "assistant" | "tool" | "summary";
export type Outcome = "ok" | "error" | "denied" | "cancelled" | "unknown";

export interface TextPart {
  type: "text";
  text: string;
  is_abandoned?: boolean;
}
export interface ReasoningPart {
  type: "reasoning";
  text: string;
  is_abandoned?: boolean;
  model?: string;
}
export interface CallPart {
  type: "call";
  id: string;
  name: string;
  arguments: string;
}
export interface ResultPart {
  type: "result";
  call_id: string;
  name: string;
  text: string;
  outcome?: Outcome;
  artifact?: string | null;
  display?: unknown;
  duration_ms?: number | null;
  is_untrusted?: boolean;
}
export interface AttachmentPart {
  type: "attachment";
  file_id: string;
  name: string;
  media_type: string;
  size: number;
}
export interface SummaryPart {
  type: "summary";
  text: string;
  covers: string;
  messages?: number;
  tokens_before?: number | null;
  tokens_after?: number | null;
}
export type Part = TextPart | ReasoningPart | CallPart | ResultPart | AttachmentPart | SummaryPart;

export interface Message {
  id: string;
  turn_id: string;
  role: Role;
  parts: Part[];
  created_at: number;
  ordinal?: number;
  is_steering?: boolean;
  is_recovered?: boolean;
  model?: string;
}

export interface Failure {
  code: string;
  message: string;
  hint?: string;
}
export interface Usage {
  input_tokens?: number | null;
  output_tokens?: number | null;
  cached_tokens?: number | null;
  reasoning_tokens?: number | null;
  cost_usd?: number | null;
}
export interface Bar {
  kind: string;
  label: string;
  start_at: number;
  end_at?: number | null;
  state?: string;
  step?: number | null;
  call_id?: string | null;
  usage?: Usage | null;
  first_token_at?: number | null;
  thought_until?: number | null;
  missed_cache?: boolean;
}
export interface Turn {
  id: string;
  session_id: string;
  owner: string;
  state: TurnState;
  epoch: number;
  created_at: number;
  kind?: "message" | "compaction";
  parent_id?: string | null;
  text?: string;
  model?: string | null;
  profile?: string | null;
  started_at?: number | null;
  ended_at?: number | null;
  attempts?: number;
  failure?: Failure | null;
  recovery?: "none" | "pending" | "recovered" | "final";
  recovered_at?: number | null;
  usage?: Usage;
  timeline?: Bar[];
  sibling?: number;
  siblings?: number;
  sibling_ids?: string[];
}

export interface Session {
  id: string;
  owner: string;
  version: number;
  position: number;
  created_at: number;
  updated_at: number;
  title?: string;
  is_title_given?: boolean;
  key?: string;
  head?: string | null;
  redo_to?: string | null;
  pinned?: boolean;
  archived?: boolean;
  private?: boolean;
  tags?: string[];
  project?: string | null;
  profile?: string | null;
  model?: string | null;
  active_turn?: string | null;
  active_state?: TurnState | null;
  last_state?: TurnState | null;
  queued?: number;
  asks?: number;
  is_unread?: boolean;
  messages?: number;
  preview?: string;
}

export interface Hit {
  session_id: string;
  message_id: string;
  turn_id: string;
  role: string;
  title: string;
  excerpt: string;
  created_at: number;
  marks?: [number, number][];
}

/** What `GET /api/sessions/{id}/messages` gives. */
export interface MessagesPage {
  messages: Message[];
  turns: Turn[];
  cursor?: string | null;
  version: number;
  position: number;
  replay_from?: number | null;
}

export type Payload =
  | { kind: "turn.accepted"; message: Message; place?: number }
  | { kind: "turn.started"; epoch: number; worker: string }
  | { kind: "step.started"; step: number; model: string; attempt?: number }
  | { kind: "text.delta"; step: number; text: string }
  | { kind: "reasoning.delta"; step: number; text: string }
  | { kind: "step.finished"; step: number; finish: string; calls?: CallPart[]; reasoning?: ReasoningPart[] }
  | {
      kind: "step.abandoned";
      step: number;
      reason: string;
      message?: string;
      continues?: boolean;
      retry_in_ms?: number | null;
      model?: string;
    }
  | { kind: "usage"; step: number; model: string; usage: Usage; missed_cache?: boolean }
  | { kind: "progress"; label: string; done?: number; total?: number | null }
  | {
      kind: "tool.started";
      step: number;
      call_id: string;
      name: string;
      arguments: string;
      label?: string;
      attempt?: number;
    }
  | { kind: "tool.output"; call_id: string; text: string }
  | {
      kind: "tool.finished";
      call_id: string;
      name: string;
      outcome: Outcome;
      text: string;
      artifact?: string | null;
      display?: unknown;
      is_untrusted?: boolean;
    }
  | {
      kind: "approval.requested";
      ask_id: string;
      call_id: string;
      name: string;
      arguments: string;
      digest: string;
      reason: string;
      label?: string;
      options?: string[];
    }
  | { kind: "approval.resolved"; ask_id: string; call_id: string; decision: string; by: string }
  | {
      kind: "question.asked";
      ask_id: string;
      text: string;
      choices?: string[];
      topic?: string;
      call_id?: string | null;
    }
  | {
      kind: "question.answered";
      ask_id: string;
      answer: string;
      by: string;
      topic?: string;
      call_id?: string | null;
    }
  | { kind: "turn.waiting"; asks: string[] }
  | {
      kind: "turn.resumed";
      epoch: number;
      worker: string;
      reason: string;
      attempt?: number;
      stopped_at?: number | null;
      step?: number;
    }
  | { kind: "turn.completed"; usage?: Usage; version?: number }
  | { kind: "turn.cancelled"; by?: string; version?: number }
  | { kind: "turn.failed"; failure: Failure; version?: number }
  | { kind: "turn.interrupted"; failure: Failure; recovery?: string; version?: number }
  | { kind: "message.added"; message: Message }
  | { kind: "session.changed"; version: number; what: string; head?: string | null }
  | { kind: "snapshot"; position: number; version: number };

/** One durable event, as it comes over the stream. */
export interface SessionEvent {
  session_id: string;
  position: number;
  turn_id: string | null;
  at: number;
  event: Payload;
}

/** News about the session list, on the same connection. */
export interface ListEvent {
  kind: string;
  session_id?: string;
  sessions?: Session[];
  session?: Session;
}

export interface Ask {
  id: string;
  session_id: string;
  turn_id: string;
  topic: string;
  created_at: number;
  call_id?: string | null;
  text?: string;
  choices?: string[];
  name?: string;
  arguments?: string;
  label?: string;
  answer?: string | null;
  title?: string;
}

export interface Accepted {
  turn: Turn;
  cursor: number;
  is_repeat?: boolean;
  is_steering?: boolean;
}

export interface UploadedFile {
  id: string;
  name: string;
  media_type: string;
  size: number;
}
