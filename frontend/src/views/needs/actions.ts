/** What can be done about a row of "Needs you": its buttons, and the keys that press them. */

import type { Page } from "../../app/page.svelte";
import { needsWords } from "../../needs-words";
import { raisedBy } from "../../state/budgets";
import { choicesOf, goBack, signedIn } from "../../state/items";
import { askState, callOf, isLong, sessionOf, textOf, type Need } from "../../state/needs";
import { count, money, when } from "../../text/format";
import { visible } from "../../text/exact";
import { words } from "../../words";
import { workWords } from "../../work-words";

export interface Action {
  id: string;
  label: string;
  key: string;
  look: "pri" | "" | "ghost";
  /** Its text is to be unfolded first. */
  isHeld: boolean;
  run: () => void;
}

const refusals = ["deny", "leave them out", "not now"];
const approvalKeys: Record<string, string> = { once: "Y", session: "S", deny: "N" };

/** The row is being answered in words. */
export interface Writing {
  open: (need: Need) => void;
}

export function actionsOf(page: Page, need: Need, writing: Writing): Action[] {
  const needs = page.needs;
  const isHeld = isLong(textOf(need)) && !needs.unfolded.has(need.id);
  const make = (id: string, label: string, key: string, look: Action["look"], what: () => Promise<unknown>, held = false): Action => ({
    id,
    label,
    key,
    look,
    isHeld: held,
    run: () => (held ? needs.unfold(need.id) : void needs.act(need, what)),
  });
  const dismiss = (key: string): Action => make("dismiss", needsWords.dismiss, key, "ghost", () => needs.dismiss(need));
  switch (need.kind) {
    case "approval":
      return approvalActions(page, need, isHeld, make);
    case "budget":
      return budgetActions(page, need, make);
    case "schedule": {
      const schedule = need.schedule!;
      if (schedule.turn_id) return [make("run", needsWords.runAgain, "1", "", () => needs.runAgain(need)), dismiss("2")];
      const open = { ...make("open", needsWords.openSchedule, "1", "", async () => undefined), run: () => page.go({ at: "schedules", id: schedule.schedule_id }) };
      return [open, dismiss("2")];
    }
    case "job":
      return [{ ...make("open", needsWords.open, "1", "", async () => undefined), run: () => openSession(page, need) }, dismiss("2")];
    case "send": {
      const again = make("resend", needsWords.sendAgain, "1", "", () => needs.decideSend(need, "resend"));
      if (need.send!.state !== "held") return [again];
      return [again, make("arrived", needsWords.itArrived, "2", "ghost", () => needs.decideSend(need, "arrived"))];
    }
    default:
      return answerActions(page, need, isHeld, make, writing);
  }
}

type Make = (id: string, label: string, key: string, look: Action["look"], what: () => Promise<unknown>, held?: boolean) => Action;

function approvalActions(page: Page, need: Need, isHeld: boolean, make: Make): Action[] {
  const { answers } = page.needs;
  const ask = need.asks[0]!;
  const state = askState(ask);
  const labels: Record<string, string> = { once: words.allowOnce, session: words.allowSession, always: words.allowAlways, trust: words.trust, deny: words.deny };
  const allowing = state.options.filter((option) => option !== "deny");
  const actions = allowing.map((option, index) =>
    make(option, labels[option] ?? option, approvalKeys[option] ?? "", index === 0 ? "pri" : index === 1 ? "" : "ghost", () => answers.answer(state, option), isHeld),
  );
  if (state.options.includes("once")) {
    const edit = () => answers.change(state, callOf(ask));
    actions.push({ id: "edit", label: words.editCall, key: "E", look: "ghost", isHeld, run: () => (isHeld ? page.needs.unfold(need.id) : edit()) });
  }
  if (state.options.includes("deny")) actions.push(make("deny", words.deny, "N", "ghost", () => answers.answer(state, "deny")));
  return actions;
}

function answerActions(page: Page, need: Need, isHeld: boolean, make: Make, writing: Writing): Action[] {
  const state = askState(need.asks[0]!);
  const choices = choicesOf(state);
  /** Where files can go back, as in the session. */
  const labels = choices.includes(goBack) ? { ...words.doubtChoices, check: words.doubtKeep } : words.doubtChoices;
  const actions: Action[] = choices.map((choice, index) =>
    choice === signedIn && state.topic === "sign_in" ? { ...make(choice, words.signInAt, "1", "pri", async () => undefined), run: () => page.go({ at: "settings", section: "mcp" }) } :
    make(
      choice,
      labels[choice] ?? visible(choice),
      index < 9 ? String(index + 1) : "",
      need.kind === "question" || index === 0 ? "" : "ghost",
      () => page.needs.answers.answer(state, choice),
      isHeld && !refusals.includes(choice),
    ),
  );
  if (state.topic === "question") actions.push({ id: "write", label: needsWords.writeAnswer, key: "W", look: "ghost", isHeld: false, run: () => writing.open(need) });
  return actions;
}

function budgetActions(page: Page, need: Need, make: Make): Action[] {
  const { needs } = page;
  const state = askState(need.asks[0]!);
  const budget = needs.budgets.get(need.asks[0]!.budget?.budget_id ?? "");
  const actions: Action[] = [];
  if (state.choices.includes("raise")) {
    const offered = need.asks[0]!.budget?.offered;
    const amount = budget ? amountOf(budget.unit, raisedBy(budget, offered)) : "";
    actions.push(make("raise", needsWords.raise(amount), "1", "", () => needs.answers.answer(state, "raise")));
  } else {
    actions.push({ ...make("change", workWords.changeBudgets, "1", "", async () => undefined), run: () => page.go({ at: "settings", section: "budgets" }) });
  }
  if (!budget || budget.period_end !== null) {
    const label = !budget || budget.scope === "day" ? needsWords.waitMidnight : needsWords.waitUntil(when(budget.period_end!, page.now));
    actions.push(make("wait", label, "2", "ghost", () => needs.dismiss(need)));
  } else {
    actions.push(make("stop", needsWords.stopHere, "2", "ghost", () => needs.answers.answer(state, "stop")));
  }
  return actions;
}

export function amountOf(unit: string, amount: number): string {
  return unit === "usd" ? money(amount) : needsWords.tokensAmount(count(amount));
}

export function openSession(page: Page, need: Need): void {
  const session = sessionOf(need);
  if (session) page.go({ at: "session", id: session });
  else if (need.schedule) page.go({ at: "schedules", id: need.schedule.schedule_id });
}
