/** Notifications: the devices of this server's owner, and the push subscription of this browser. */

import { type Api, explain } from "../api/client";
import type { AddedDevice, Device, NoticeSettings, Push } from "../api/types";
import { noticeWords } from "../notice-words";
import { words } from "../words";

const storageName = "everturn.device";

/** Why this browser cannot be added; empty if it can. */
export function browserProblem(): string {
  if (!isSecureContext) return noticeWords.needsHttps;
  if (!("serviceWorker" in navigator) || !("PushManager" in window)) {
    return /iPhone|iPad/.test(navigator.userAgent) ? noticeWords.homeScreen : noticeWords.unsupported;
  }
  return Notification.permission === "denied" ? noticeWords.denied : "";
}

export class Notices {
  push = $state.raw<Push | null>(null);
  problem = $state("");
  /** The device that this browser is, by its id. */
  own = $state(localStorage.getItem(storageName) ?? "");

  constructor(private readonly api: Api) {}

  get devices(): Device[] {
    return this.push?.devices ?? [];
  }
  get ownDevice(): Device | undefined {
    return this.devices.find((device) => device.id === this.own);
  }

  async read(): Promise<void> {
    await this.act(async () => {
      this.push = await this.api.get<Push>("api/push");
    });
  }

  /** Saved at once; what could not be saved is taken back. */
  async choose(device: Device, kind: string, isOn: boolean): Promise<void> {
    const kinds = this.push?.kinds.filter((one) => (one === kind ? isOn : device.kinds.includes(one))) ?? [];
    this.replace({ ...device, kinds });
    if (!(await this.act(() => this.api.patch(`api/push/${device.id}`, { body: { kinds } })))) this.replace(device);
  }

  async addBrowser(): Promise<void> {
    await this.act(async () => {
      if ((await Notification.requestPermission()) !== "granted") throw new Error(noticeWords.denied);
      const key = this.push?.key ?? "";
      const registration = await navigator.serviceWorker.ready;
      // One that was made with another key takes no messages of this server.
      await (await registration.pushManager.getSubscription())?.unsubscribe();
      const made = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
      const { endpoint, keys } = made.toJSON();
      const browser = { endpoint, p256dh: keys?.p256dh, auth: keys?.auth, key };
      const has_buttons = "actions" in Notification.prototype || "maxActions" in Notification;
      const added = await this.add({ name: nameOfBrowser(), browser, has_buttons });
      this.own = added.device.id;
      localStorage.setItem(storageName, this.own);
    });
  }

  async add(body: Record<string, unknown>): Promise<AddedDevice> {
    const added = await this.api.post<AddedDevice>("api/push", { body });
    await this.read();
    return added;
  }

  async remove(device: Device): Promise<void> {
    await this.act(async () => {
      await this.api.delete(`api/push/${device.id}`);
      if (device.id === this.own) await (await (await navigator.serviceWorker?.ready)?.pushManager.getSubscription())?.unsubscribe();
    });
    await this.read();
  }

  test(device: Device): Promise<boolean> {
    return this.act(() => this.api.post(`api/push/${device.id}/test`));
  }

  async set(settings: NoticeSettings): Promise<void> {
    const body = { quiet: settings.quiet ?? null, shows_content: settings.shows_content ?? true };
    await this.act(async () => {
      this.push = await this.api.put<Push>("api/push/settings", { body });
    });
  }

  /** False, with a problem to show, if it did not work. */
  async act(what: () => Promise<unknown>): Promise<boolean> {
    try {
      await what();
      this.problem = "";
      return true;
    } catch (error) {
      this.problem = explain(error, words.serverAway);
      return false;
    }
  }

  private replace(device: Device): void {
    if (this.push) this.push = { ...this.push, devices: this.devices.map((one) => (one.id === device.id ? device : one)) };
  }
}

function nameOfBrowser(): string {
  const agent = navigator.userAgent;
  const browser = [["Edg/", "Edge"], ["OPR/", "Opera"], ["Firefox/", "Firefox"], ["Chrome/", "Chrome"], ["Safari/", "Safari"]].find(([mark]) => agent.includes(mark!));
  const system = [["Android", "Android"], ["iPhone", "iPhone"], ["iPad", "iPad"], ["Mac OS", "Mac"], ["Windows", "Windows"], ["Linux", "Linux"]].find(([mark]) => agent.includes(mark!));
  return noticeWords.browserName(browser?.[1] ?? "Browser", system?.[1] ?? "this device");
}
