/** Where messages come from, as the page calls it: messaging platforms, schedules, jobs and delegates. */

const names: Record<string, string> = {
  telegram: "Telegram",
  slack: "Slack",
  discord: "Discord",
  mail: "Mail",
  webhook: "Webhook",
  schedule: "a schedule",
  job: "a job",
  delegate: "a delegate",
};

/** A platform of a package that the page does not know is called as it calls itself. */
export function platformName(platform: string): string {
  return names[platform] ?? platform.charAt(0).toUpperCase() + platform.slice(1);
}
