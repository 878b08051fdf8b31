/** What usage and the audit log say. Another language is another object of this shape. */

export const usageWords = {
  // usage
  usage: "Usage",
  usageLead: "Tokens and cost of your answers, by day and by model.",
  period: "Period",
  periods: { "7": "7 days", "30": "30 days", "90": "90 days", "365": "1 year" } as Record<string, string>,
  show: "Show",
  measures: { tokens: "Tokens", cost: "Cost" },
  perDay: { tokens: "Tokens per day", cost: "Cost per day" },
  dayValue: (day: string, value: string) => `${day}: ${value}`,
  most: (value: string) => `Highest: ${value}`,
  asTable: "As a table",
  day: "Day",
  answers: "Answers",
  csv: "Download CSV",
  csvColumns: ["day", "model", "answers", "input_tokens", "cached_tokens", "output_tokens", "cost_usd"],
  nothingUsed: "Nothing was used in this time.",
  byModel: "By model",
  // audit log
  audit: "Audit log",
  auditLead: "Sign-ins, keys, approvals, budgets, schedules and other changes, also those made in chats, newest first. Kept in audit.jsonl in the data folder.",
  auditFilter: "Filter",
  auditEmpty: "Nothing was logged yet.",
  auditNone: "Nothing matches.",
  auditNewest: (count: number) => `The newest ${count} entries`,
};
