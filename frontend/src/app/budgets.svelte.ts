import { Away, explain, type Api } from "../api/client";
import type { Budget, BudgetList } from "../api/types";
import { words } from "../words";

/** Names a budget: of each owner there is one with this key. */
export type BudgetKey = Pick<Budget, "scope" | "unit"> & { subject?: string };

/** The budgets of the user. */
export class Budgets {
  items = $state.raw<readonly Budget[]>([]);
  /** Of budgets that name none. */
  timezone = $state("");
  isRead = $state(false);
  problem = $state("");

  constructor(private readonly api: Api) {}

  async read(): Promise<void> {
    try {
      this.take(await this.api.get<BudgetList>("api/budgets"));
    } catch (error) {
      if (!(error instanceof Away) || !this.isRead) this.problem = words.couldNotLoad(explain(error, words.serverAway));
    }
  }

  /** Set, change or, with null, remove a budget. Raises what the server says against it. */
  async put(key: BudgetKey, amount: number | null, timezone?: string): Promise<void> {
    const body = { scope: key.scope, unit: key.unit, subject: key.subject ?? "", amount, ...(timezone ? { timezone } : {}) };
    this.take(await this.api.put<BudgetList>("api/budgets", { body }));
  }

  private take(list: BudgetList): void {
    this.items = list.items;
    this.timezone = list.timezone;
    this.isRead = true;
    this.problem = "";
  }
}
