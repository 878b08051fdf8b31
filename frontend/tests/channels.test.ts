import { beforeEach, describe, expect, it, vi } from "vitest";
import { Api } from "../src/api/client";
import type { Account, UndecidedPart } from "../src/api/types";
import { Channels, chatLink, shownCode } from "../src/app/channels.svelte";
import { sourceOf } from "../src/state/items";
import { platformName } from "../src/text/platforms";
import { words } from "../src/words";

function account(name: string, more: Partial<Account> = {}): Account {
  return { name, origin: "store", settings: { platform: "telegram" }, secrets: { token: true }, health: { state: "connected" }, figures: {}, ...more };
}

const held: UndecidedPart = {
  id: "prt_1", account: "telegram", platform: "telegram", chat_id: "cht_1", chat_title: "Ann", state: "held", changed_at: 1, error: null, session_id: null, turn_id: null, excerpt: "It ran.",
};

let asked: { method: string; path: string; body: unknown }[];
let accounts: Account[];
let undecided: UndecidedPart[];
let refusal: Response | null;
let channels: Channels;

beforeEach(() => {
  asked = [];
  accounts = [account("telegram")];
  undecided = [held];
  refusal = null;
  vi.stubGlobal("fetch", (url: string, init: RequestInit) => {
    const { pathname, search } = new URL(url);
    if (init.method !== "GET") asked.push({ method: init.method!, path: pathname + search, body: init.body ? JSON.parse(init.body as string) : null });
    if (init.method === "GET") return Promise.resolve(Response.json({ accounts, platforms: ["slack", "telegram"], undecided }));
    return Promise.resolve(refusal ?? Response.json({ name: "@bot" }));
  });
  channels = new Channels(new Api("http://here/"));
});

describe("channels", () => {
  it("are read with what is undecided", async () => {
    await channels.read();
    expect([channels.isRead, channels.accounts.length, channels.platforms, channels.undecided]).toEqual([true, 1, ["slack", "telegram"], [held]]);
    expect(channels.find("telegram")?.name).toBe("telegram");
  });

  it("stay as they were while the server is away", async () => {
    await channels.read();
    vi.stubGlobal("fetch", () => Promise.reject(new TypeError("away")));
    await channels.read();
    expect(channels.problem).not.toBe("");
    expect(channels.accounts.length).toBe(1);
  });

  it("get a name that is free", async () => {
    accounts = [account("telegram"), account("telegram-2")];
    await channels.read();
    expect([channels.freeName("telegram"), channels.freeName("slack")]).toEqual(["telegram-3", "slack"]);
  });

  it("are sent again, or marked as arrived, and then read anew", async () => {
    await channels.read();
    undecided = [];
    await channels.sendAgain(held);
    expect(asked.at(-1)?.path).toBe("/api/gateway/parts/prt_1/resend");
    expect(channels.undecided).toEqual([]);
    await channels.confirmArrived(held);
    expect(asked.at(-1)?.path).toBe("/api/gateway/parts/prt_1/arrived");
  });

  it("that somebody else has decided about meanwhile are read anew, too", async () => {
    await channels.read();
    undecided = [];
    refusal = Response.json({ status: 409, code: "wrong_state", detail: "It was sent." }, { status: 409 });
    await expect(channels.sendAgain(held)).rejects.toThrow("It was sent.");
    expect(channels.undecided).toEqual([]);
  });

  it("that are refused say why", async () => {
    refusal = Response.json({ status: 422, code: "account_refused", detail: "Telegram: Unauthorized." }, { status: 422 });
    await expect(channels.add({ name: "telegram", platform: "telegram", secrets: { token: "x" }, options: {} })).rejects.toThrow("Unauthorized");
    expect(asked[0]).toEqual({ method: "POST", path: "/api/gateway", body: { name: "telegram", platform: "telegram", secrets: { token: "x" }, options: {} } });
  });

  it("are checked, turned off, unpaired and removed", async () => {
    await channels.read();
    const [first] = channels.accounts;
    expect(await channels.check(first!)).toBe("@bot");
    await channels.setEnabled(first!, false);
    await channels.replaceSecrets(first!, { token: "new" });
    await channels.setRole(first!, "42 x", "member");
    await channels.removePerson(first!, "42 x");
    await channels.remove(first!);
    expect(asked.map(({ method, path }) => `${method} ${path}`)).toEqual([
      "POST /api/gateway/telegram/test",
      "PATCH /api/gateway/telegram",
      "PATCH /api/gateway/telegram",
      "PATCH /api/gateway/telegram/people?sender=42+x",
      "DELETE /api/gateway/telegram/people?sender=42+x",
      "DELETE /api/gateway/telegram",
    ]);
  });
});

describe("a message from a chat", () => {
  it("says where it came from", () => {
    const source = { platform: "telegram", sender: "Ada", sent_at: 5, is_trusted: true };
    const message = { id: "msg_1", turn_id: "trn_1", role: "user" as const, parts: [{ type: "text" as const, text: "hello", source }], created_at: 1 };
    expect(sourceOf(message)).toEqual(source);
    expect(sourceOf({ ...message, parts: [{ type: "text", text: "hello" }] })).toBeNull();
    expect(sourceOf(null)).toBeNull();
  });
});

describe("a pairing code", () => {
  it("is brought along by a link to a chat of Telegram", () => {
    const code = { code: "K7QM-42XD", link: "https://t.me/helper_bot" };
    expect(chatLink("telegram", code)).toBe("https://t.me/helper_bot?start=K7QM-42XD");
    expect([chatLink("discord", code), chatLink("telegram", { code: "K7QM-42XD" })]).toEqual(["https://t.me/helper_bot", ""]);
  });
});

describe("words", () => {
  it("show a code in two halves, and name platforms that the page does not know", () => {
    expect(shownCode("K7QM42XD")).toBe("K7QM-42XD");
    expect([platformName("telegram"), platformName("matrix")]).toEqual(["Telegram", "Matrix"]);
    expect(words.fromChat(platformName("schedule"), "08:00")).toBe("From a schedule 08:00");
  });
});
