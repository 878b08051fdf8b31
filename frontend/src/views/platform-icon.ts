import type { IconName } from "./icons";

const icons: Record<string, IconName> = {
  telegram: "send",
  slack: "hash",
  discord: "message-circle",
  mail: "mail",
  webhook: "webhook",
  schedule: "clock",
  job: "terminal",
  delegate: "split",
};

export function platformIcon(platform: string): IconName {
  return icons[platform] ?? "message-square";
}
