import { explain, type Api } from "../api/client";
import type { Account, Accounts, PairingCode, PlatformForm, UndecidedPart } from "../api/types";
import { words } from "../words";

/** The server loads the platform's library first, which can take a while, and then asks the platform. */
const askingMs = 90_000;

export type Role = "owner" | "member";

/** What a new account is made of. */
export interface NewAccount {
  name: string;
  platform: string;
  secrets: Record<string, string>;
  options: Record<string, string>;
}

/** The accounts on messaging platforms, and messages that a person has to decide about. */
export class Channels {
  accounts = $state.raw<readonly Account[]>([]);
  platforms = $state.raw<readonly string[]>([]);
  undecided = $state.raw<readonly UndecidedPart[]>([]);
  isRead = $state(false);
  problem = $state("");

  constructor(private readonly api: Api) {}

  async read(): Promise<void> {
    try {
      const found = await this.api.get<Accounts>("api/gateway");
      this.accounts = found.accounts;
      this.platforms = found.platforms;
      this.undecided = found.undecided;
      this.isRead = true;
      this.problem = "";
    } catch (error) {
      this.problem = words.couldNotLoad(explain(error, words.serverAway));
    }
  }

  find(name: string): Account | null {
    return this.accounts.find((account) => account.name === name) ?? null;
  }

  /** A name that no account has: the platform's, with a number if need be. */
  freeName(platform: string): string {
    for (let number = 1; ; number += 1) {
      const name = number === 1 ? platform : `${platform}-${number}`;
      if (!this.find(name)) return name;
    }
  }

  form(platform: string): Promise<PlatformForm> {
    return this.api.get(`api/gateway/platforms/${encodeURIComponent(platform)}`, { timeoutMs: askingMs });
  }

  async add(account: NewAccount): Promise<Account> {
    const added = await this.api.post<Account>("api/gateway", { body: account, timeoutMs: askingMs });
    await this.read();
    return added;
  }

  async setEnabled(account: Account, enabled: boolean): Promise<void> {
    await this.change(account, { enabled });
  }

  /** Whether the chat shows what a turn does while it runs. */
  async setLive(account: Account, live: boolean): Promise<void> {
    await this.change(account, { live });
  }

  private async change(account: Account, body: Record<string, boolean>): Promise<void> {
    await this.api.patch(this.path(account), { body });
    await this.read();
  }

  /** Nothing is stored unless the platform accepts them. */
  async replaceSecrets(account: Account, secrets: Record<string, string>): Promise<void> {
    await this.api.patch(this.path(account), { body: { secrets }, timeoutMs: askingMs });
    await this.read();
  }

  async remove(account: Account): Promise<void> {
    await this.api.delete(this.path(account));
    await this.read();
  }

  /** Who the account is, as its platform says. */
  async check(account: Account): Promise<string> {
    const found = await this.api.post<{ name: string }>(`${this.path(account)}/test`, { timeoutMs: askingMs });
    await this.read();
    return found.name;
  }

  pair(account: string, role: Role): Promise<PairingCode> {
    return this.api.post(`api/gateway/${account}/pair`, { body: { role } });
  }

  async setRole(account: Account, sender: string, role: Role): Promise<void> {
    try {
      await this.api.patch(`${this.path(account)}/people`, { query: { sender }, body: { role } });
    } finally {
      await this.read();
    }
  }

  async removePerson(account: Account, sender: string): Promise<void> {
    await this.api.delete(`${this.path(account)}/people`, { query: { sender } });
    await this.read();
  }

  async sendAgain(part: UndecidedPart): Promise<void> {
    await this.decide(part, "resend");
  }

  async confirmArrived(part: UndecidedPart): Promise<void> {
    await this.decide(part, "arrived");
  }

  /** What is left to decide is read again, also if it was decided elsewhere first. */
  private async decide(part: UndecidedPart, how: "resend" | "arrived"): Promise<void> {
    try {
      await this.api.post(`api/gateway/parts/${part.id}/${how}`);
    } finally {
      await this.read();
    }
  }

  private path(account: Account): string {
    return `api/gateway/${account.name}`;
  }
}

/** Where the account is found. A link of Telegram brings the code along: the chat opens, and its first tap sends it. */
export function chatLink(platform: string, { link = "", code }: Pick<PairingCode, "link" | "code">): string {
  return link && platform === "telegram" ? `${link}?start=${shownCode(code)}` : link;
}

/** Eight characters are easier to type in two halves. */
export function shownCode(code: string): string {
  return code.length === 8 ? `${code.slice(0, 4)}-${code.slice(4)}` : code;
}
