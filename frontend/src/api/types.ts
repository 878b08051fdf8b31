/** The values that travel between server and page, under the names that the page uses.
 *
 * They are made from the server's description (scripts/types.mjs). Absent means default.
 */

import type { components } from "./schema";

type Schemas = components["schemas"];

export type TurnState = Schemas["TurnState"];
export type BackupStatus = Schemas["BackupStatus"];
export type Outcome = Schemas["Outcome"];
export type CallPart = Schemas["Call"];
export type ReasoningPart = Schemas["Reasoning"];
export type ResultPart = Schemas["Result"];
export type SavedFilesPart = Schemas["SavedFiles"];
export type AttachmentPart = Schemas["Attachment"];
export type SkillPart = Schemas["UsedSkill"];
export type SkillLine = Schemas["SkillLine"];
export type SkillLines = Schemas["SkillLines"];
export type ShownSkill = Schemas["ShownSkill"];
export type Prompt = Schemas["PromptOut"];
export type PromptList = Schemas["PromptList"];
export type SlashEntry = Schemas["SlashEntry"];
export type SlashList = Schemas["SlashList"];
export type Expanded = Schemas["Expanded"];
export type SummaryPart = Schemas["Summary"];
export type Message = Schemas["Message"];
export type MessageSource = Schemas["Source"];
export type Part = Message["parts"][number];
export type Failure = Schemas["Failure"];
export type Usage = Schemas["Usage"];
export type Bar = Schemas["Bar"];
export type Turn = Schemas["Turn"];
export type ImportedHistory = Schemas["ImportedHistory"];
export type Session = Schemas["Session"];
export type Parameters = Schemas["Parameters"];
export type AuditPage = Schemas["AuditPage"];
export type Hits = Schemas["Hits"];
export type Labels = Schemas["Labels"];
export type Hit = Schemas["Hit"];
export type Ask = Schemas["Ask"];
export type Asks = Schemas["AsksOut"];
export type Answered = Schemas["Answered"];
export type TroubledSchedule = Schemas["TroubledSchedule"];
export type ScheduleList = Schemas["ScheduleList"];
export type ScheduleView = Schemas["ScheduleView"];
export type ScheduleRule = ScheduleView["rule"];
export type Occurrence = Schemas["Occurrence"];
export type Occurrences = Schemas["Occurrences"];
export type ReadSentence = Schemas["ReadSentence"];
export type SchedulePreview = Schemas["Preview"];
export type Queue = Schemas["Queue"];
export type Accepted = Schemas["Accepted"];
export type TakenBack = Schemas["TakenBack"];
export type UploadedFile = Schemas["Uploaded"];
export type MessagesPage = Schemas["Messages"];
export type SessionEvent = Schemas["SessionEvent"];
export type Payload = SessionEvent["event"];

export type WorkspaceFile = Schemas["WorkspaceFile"];
export type WorkspaceFiles = Schemas["WorkspaceFiles"];
export type ShownFolders = Schemas["ShownFolders"];

export type FileChange = Schemas["ComparedFile"];
export type FileVersion = Schemas["FileVersion"];
export type FileHistory = Schemas["FileHistory"];
export type FilesDiff = Schemas["FilesDiff"];
export type KeptFile = Schemas["KeptFile"];
export type FilesInDoubt = Schemas["FilesInDoubt"];
export interface FileChanges {
  changes: FileChange[];
  total: number;
}
export type SavedFile = Schemas["SavedFile"];
export type Accounts = Schemas["AccountsOut"];
export type Account = Schemas["Account"];
export type UndecidedPart = Schemas["UndecidedPart"];
export type ReplyDelivery = Schemas["ReplyDelivery"];
export type PairingCode = Schemas["PairingCode"];
export type PlatformForm = Schemas["PlatformForm"];
export type Push = Schemas["Push"];
export type Device = Schemas["ShownDevice"];
export type AddedDevice = Schemas["AddedDevice"];
export type NoticeSettings = Schemas["NoticeSettings"];
export type Job = Schemas["ShownJob"];
export type JobList = Schemas["JobsOut"];
export type JobOutputPiece = Schemas["OutputOut"];
export type Needs = Schemas["Needs"];
export type Budget = Schemas["BudgetView"];
export type BudgetList = Schemas["BudgetList"];
export type Delegate = Schemas["ShownDelegate"];
export type DelegateList = Schemas["DelegatesOut"];
export type Trouble = Schemas["Trouble"];
export type Settings = Schemas["Settings"];
export type KeyState = Schemas["KeyState"];
export type KeyTrial = Schemas["KeyTrial"];
export type Models = Schemas["ModelsOut"];
export type ModelLine = Schemas["ModelLine"];
export type Profiles = Schemas["ProfilesOut"];
export type Profile = Schemas["ProfileOut"];
export type ProfileDetail = Schemas["ProfileDetail"];
export type ReadProfile = Schemas["ReadProfile"];
export type TrialBegun = Schemas["TrialBegun"];
export type Tools = Schemas["ToolsOut"];
export type McpServers = Schemas["Servers"];
export type McpServer = Schemas["ServerOut"];
export type McpText = Schemas["Untrusted"];
export type Rules = Schemas["Rules"];
export type Rule = Schemas["Rule"];
export type TrustedSession = Schemas["TrustedSession"];
export type Memory = Schemas["Remembered"];
export type KnowledgeList = Schemas["KnowledgeList"];
export type Knowledge = KnowledgeList["knowledge"][number];
export type Note = Schemas["ShownNote"];
export type CommittedNow = Schemas["CommittedNow"];
export type Me = Schemas["Me"];
export type Tokens = Schemas["Tokens"];
export type NewToken = Schemas["NewToken"];
export type ServerHealth = Schemas["ServerHealth"];
export type UsageReport = Schemas["UsageReport"];
export type UsageLine = Schemas["UsageLine"];

/** News about the session list, on the same connection. */
export interface ListEvent {
  kind: string;
  session_id?: string;
  sessions?: Session[];
  session?: Session | null;
  /** Why nothing can be stored: in the snapshot and in store.trouble. */
  trouble?: Trouble | null;
}
