/** The values that travel between server and page, under the names that the page uses.
 *
 * They are made from the server's description (scripts/types.mjs). Absent means default.
 */

import type { components } from "./schema";

type Schemas = components["schemas"];

export type TurnState = Schemas["TurnState"];
export type Outcome = Schemas["Outcome"];
export type CallPart = Schemas["Call"];
export type ReasoningPart = Schemas["Reasoning"];
export type ResultPart = Schemas["Result"];
export type AttachmentPart = Schemas["Attachment"];
export type SummaryPart = Schemas["Summary"];
export type Message = Schemas["Message"];
export type Part = Message["parts"][number];
export type Failure = Schemas["Failure"];
export type Usage = Schemas["Usage"];
export type Bar = Schemas["Bar"];
export type Turn = Schemas["Turn"];
export type Session = Schemas["Session"];
export type Hit = Schemas["Hit"];
export type Ask = Schemas["Ask"];
export type Accepted = Schemas["Accepted"];
export type UploadedFile = Schemas["Uploaded"];
export type MessagesPage = Schemas["Messages"];
export type SessionEvent = Schemas["SessionEvent"];
export type Payload = SessionEvent["event"];

export type WorkspaceFile = Schemas["WorkspaceFile"];
export type WorkspaceFiles = Schemas["WorkspaceFiles"];
export type WorkspaceText = Schemas["WorkspaceText"];
export type Trouble = Schemas["Trouble"];
export type Settings = Schemas["Settings"];

/** News about the session list, on the same connection. */
export interface ListEvent {
  kind: string;
  session_id?: string;
  sessions?: Session[];
  session?: Session | null;
  /** Why nothing can be stored: in the snapshot and in store.trouble. */
  trouble?: Trouble | null;
}
