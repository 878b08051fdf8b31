// Writes src/api/schema.ts from the server's own description, and keeps that description beside it.
//
//   node scripts/types.mjs [address or file]     default: http://127.0.0.1:8420/openapi.json
//
// A test compares the kept description with what the server says now, another one this file's output.
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";

const folder = new URL("../src/api/", import.meta.url);

export async function generate(document) {
  // Absent means default, as the server leaves defaults out: a field with a default may be missing.
  const ast = await openapiTS(document, { defaultNonNullable: false });
  return `/* Made from the server's description by scripts/types.mjs. Not to be edited. */\n\n${astToString(ast)}`;
}

/** What the page speaks of; the rest of the server's description may change without the page noticing. */
const spoken = [
  "Accepted", "AccountsOut", "AuditPage", "AddedDevice", "BackupStatus", "Expanded", "PromptList", "ShownSkill", "SkillLines", "SlashList", "Answered", "AsksOut", "BudgetList", "CommittedNow", "DelegatesOut", "FileHistory", "FilesDiff", "Hits", "ImportedHistory", "JobsNews", "JobsOut", "KeyTrial", "Labels", "ListSnapshot", "Me", "Messages", "ModelsOut", "Parameters", "Needs", "NeedsNews", "NewToken", "Occurrences", "OutputOut",
  "PairingCode", "PlatformForm", "ProfileDetail", "ProfilesOut", "ReadProfile", "TrialBegun", "Push", "Queue", "ReadSentence", "Remembered", "Rules", "SavedFile", "ScheduleList", "ServerHealth", "Servers", "SessionEvent", "SessionNews", "ShownFolders",
  "Settings", "StoreNews", "TakenBack", "Tokens", "ToolsOut", "Uploaded", "UsageReport", "WorkspaceFiles",
  "KnowledgeList",
];

/** Without the server's comments: they may be reworded without the page noticing. A field may be called so, too. */
function withoutComments(key, value) {
  return key === "description" && typeof value === "string" ? undefined : value;
}

export function reduced(document) {
  const all = JSON.parse(JSON.stringify(document.components.schemas, withoutComments));
  const kept = new Set();
  const keep = (name) => {
    if (kept.has(name)) return;
    kept.add(name);
    for (const [, next] of JSON.stringify(all[name]).matchAll(/"#\/components\/schemas\/([^"]+)"/g)) keep(next);
  };
  spoken.forEach(keep);
  const schemas = Object.fromEntries([...kept].sort().map((name) => [name, all[name]]));
  return { openapi: document.openapi, info: { title: "Everturn", version: "" }, paths: {}, components: { schemas } };
}

async function main(source) {
  const text = /^https?:/.test(source) ? await (await fetch(source)).text() : await readFile(source, "utf8");
  const document = reduced(JSON.parse(text));
  await writeFile(new URL("openapi.json", folder), `${JSON.stringify(document, null, 1)}\n`);
  await writeFile(new URL("schema.ts", folder), await generate(document));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await main(process.argv[2] ?? "http://127.0.0.1:8420/openapi.json");
}
