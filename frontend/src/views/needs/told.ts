/** What a row of "Needs you" says: its title, where it comes from, and its text. */

import type { Page } from "../../app/page.svelte";
import { needsWords } from "../../needs-words";
import { shortOf } from "../../state/budgets";
import { platformOf, sessionOf, sharesOf, type Need } from "../../state/needs";
import { calledOf, labelOf, lookOf } from "../../state/tools";
import { visible } from "../../text/exact";
import { bytes, count, duration, time, when } from "../../text/format";
import { locale } from "../../text/language";
import { platformName } from "../../text/platforms";
import { words } from "../../words";
import { workWords } from "../../work-words";
import { callOf } from "../../state/needs";
import { amountOf } from "./actions";

export interface Told {
  title: string;
  from: string;
  text: string;
  /** The command that the text begins with. */
  command?: string;
}

export function tellNeed(page: Page, need: Need): Told {
  switch (need.kind) {
    case "schedule":
      return tellSchedule(page, need);
    case "job":
      return tellJob(page, need);
    case "send": {
      const send = need.send!;
      const title = send.state === "held" ? needsWords.sendUnknown : needsWords.sendFailed;
      const text = [send.excerpt && `“${visible(send.excerpt)}”`, send.error ?? ""].filter(Boolean).join(" ");
      return { title, from: needsWords.sentTo(platformName(send.platform), send.chat_title, when(send.changed_at, page.now)), text };
    }
    case "budget":
      return tellBudget(page, need);
    default:
      return tellAsk(page, need);
  }
}

function tellAsk(page: Page, need: Need): Told {
  const ask = need.asks[0]!;
  const text = visible((ask.text ?? "").trim());
  const from = sessionName(page, need);
  if (need.kind === "approval") {
    const title = lookOf(ask.name ?? "").verb === "run" ? words.approveCommand : words.approveCall(visible(calledOf({ name: ask.name ?? "", arguments: ask.arguments ?? "" }).name));
    return { title, from, text: text ? words.askedBecause(text) : "" };
  }
  if (need.kind === "doubt") {
    const command = ask.name || ask.label ? labelOf(callOf(ask)) : "";
    return { title: words.outcomeUnknown, from, text: command ? needsWords.wasRunning : text || needsWords.doubtText, command: firstLine(command) };
  }
  if (need.kind === "limit") return { title: needsWords.limit, from, text };
  return { title: text.split("\n")[0] ?? "", from, text: "" };
}

function tellBudget(page: Page, need: Need): Told {
  const ask = need.asks[0]!;
  const text = ask.text ?? "";
  const asked = /^[^.]*\./.exec(text)?.[0] ?? text;
  const from = need.asks.length > 1 ? needsWords.turnsWait(need.asks.length) : sessionName(page, need);
  const budget = page.needs.budgets.get(ask.budget?.budget_id ?? "");
  if (!budget) return { title: asked, from, text: "" };
  const amount = (value: number) => amountOf(budget.unit, value);
  // It may have changed since the question was asked.
  const short = shortOf(budget, ask.budget?.needed);
  const title = short ? (workWords.tooSmall[budget.scope] ?? asked) : asked;
  const parts = [needsWords.budgetFigures(amount(budget.spent), budget.reserved ? amount(budget.reserved) : "", amount(sharesOf(budget).whole))];
  if (short) parts.push(workWords.needsMore(amount(short.needed), amount(short.left)));
  if (budget.unpriced_tokens) parts.push(needsWords.budgetUnpriced(count(budget.unpriced_tokens)));
  if (budget.period_end !== null) parts.push(needsWords.resets(ahead(budget.period_end, page.now)));
  return { title, from, text: parts.join(" ") };
}

function tellSchedule(page: Page, need: Need): Told {
  const schedule = need.schedule!;
  const title = schedule.turn_id ? needsWords.scheduleFailed(schedule.name) : needsWords.schedulePaused(schedule.name);
  const next = schedule.due_at ? needsWords.nextRun(ahead(schedule.due_at, page.now)) : "";
  return { title, from: when(schedule.at, page.now), text: [visible(schedule.reason), next].filter(Boolean).join(" ") };
}

function tellJob(page: Page, need: Need): Told {
  const job = need.job!;
  const command = visible(job.command.split("\n")[0]!);
  const kept = job.output_bytes ? needsWords.outputKept(bytes(job.output_bytes)) : needsWords.noOutput;
  return { title: needsWords.jobLost(command), from: needsWords.runningSince(when(job.started_at, page.now)), text: [visible(job.detail), kept].filter(Boolean).join(" ") };
}

/** A command in one line. */
export function firstLine(text: string): string {
  const [first = "", ...rest] = text.split("\n");
  return rest.length ? `${first} …` : first;
}

/** "at 12:00" today, with the day otherwise. */
function ahead(at: number, now: number): string {
  const days = Math.round((new Date(at).setHours(0, 0, 0, 0) - new Date(now).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days === 0) return needsWords.atTime(time(at));
  if (days === 1) return needsWords.tomorrowAt(time(at));
  return needsWords.onDayAt(new Intl.DateTimeFormat(locale, { weekday: "short", day: "numeric", month: "short" }).format(at), time(at));
}

/** The session that the user knows: a delegate is named after the one that it works for. */
export function sessionName(page: Page, need: Need): string {
  const ask = need.asks[0];
  const id = sessionOf(need);
  if (!id) return "";
  if (ask?.root_session) return needsWords.delegateOf(page.nameOf(ask.root_session), ask.title ?? "");
  const name = page.nameOf(id, ask?.title);
  return page.sessions.find(id)?.key?.startsWith("schedule:") ? `${name}, ${needsWords.scheduled}` : name;
}

export function ageOf(at: number, now: number): string {
  const age = Math.floor((now - at) / 60_000) * 60_000;
  return age < 60_000 ? needsWords.justNow : needsWords.ago(duration(age));
}

/** What became of it, in one line. */
export function tellSettled(need: Need): string {
  const { answer, by, at } = need.settled!;
  const platform = platformOf(by);
  const isWords = need.kind === "question" && !(answer in needsWords.outcomes);
  const what = isWords ? needsWords.answeredWith(visible(answer.split("\n")[0]!)) : (needsWords.outcomes[answer] ?? words.doubtChoices[answer] ?? visible(answer));
  const said = need.kind === "budget" && answer === "dismissed" ? needsWords.waits : what;
  return needsWords.settled(said, platform ? platformName(platform) : "", time(at));
}
