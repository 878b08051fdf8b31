/* Shows notifications while the page is closed, and a page of its own while the server is away.

   The page itself is never kept: it always comes from the server, so that it cannot be older than the server. */
"use strict";

const shell = "everturn-shell-1";
const kept = ["offline.html", "offline.js", "icon-192.png"];
const root = self.registration.scope;
const isGerman = /^de\b/i.test(navigator.language);
const seen = { silent: true, actions: [], requireInteraction: false };

self.addEventListener("install", (event) => {
  event.waitUntil(
    caches.open(shell).then((cache) => cache.addAll(kept.map((name) => new Request(root + name, { cache: "reload" })))).then(() => self.skipWaiting()),
  );
});

self.addEventListener("activate", (event) => {
  const old = (name) => name.startsWith("everturn-shell-") && name !== shell;
  event.waitUntil(
    caches.keys().then((names) => Promise.all(names.filter(old).map((name) => caches.delete(name)))).then(() => self.clients.claim()),
  );
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.mode === "navigate" && request.method === "GET" && !request.url.startsWith(root + "api/")) {
    event.respondWith(fetch(request).catch(() => caches.match(root + "offline.html")));
  } else if (kept.slice(1).some((name) => request.url === root + name)) {
    event.respondWith(fetch(request).catch(() => caches.match(request.url)));
  }
});

self.addEventListener("push", (event) => {
  if (event.data) event.waitUntil(show(event.data.json()));
});

self.addEventListener("notificationclick", (event) => {
  const { note } = event.notification.data ?? {};
  event.notification.close();
  event.waitUntil(event.action === "deny" && note?.ask ? deny(note) : open(note?.link ?? "#/"));
});

/** Not if the session is already in front of the person. */
async function show(note) {
  const windows = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const isVisible = windows.some((window) => window.visibilityState === "visible");
  if (note.is_gone) return withdraw(note, isVisible);
  if (note.session && windows.some((window) => window.visibilityState === "visible" && window.url.includes(`#/s/${note.session}`))) return;
  const actions = note.ask ? [{ action: "deny", title: isGerman ? "Ablehnen" : "Deny" }, { action: "open", title: isGerman ? "Öffnen" : "Open" }] : [];
  await self.registration.showNotification(note.title, { ...looks(note), actions, requireInteraction: Boolean(note.ask) });
}

/** Browsers want something to be shown for each push. While another notification or the page is visible, this one
    can just go; otherwise one quiet line takes its place. */
async function withdraw(note, isVisible) {
  const all = await self.registration.getNotifications();
  const same = all.filter((one) => one.tag === note.tag);
  if (isVisible || all.length > same.length) return same.forEach((one) => one.close());
  await self.registration.showNotification(note.title, { ...looks(note), ...seen });
}

function looks(note) {
  return { body: note.text ?? "", tag: note.tag, data: { note }, icon: root + "icon-192.png", badge: root + "badge-96.png" };
}

async function deny(note) {
  try {
    const answer = await fetch(`${root}api/approvals/${note.ask}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ decision: "deny" }),
    });
    if (answer.ok) return;
  } catch {
    // The server is away: nothing was decided, and the page says so.
  }
  await open(note.link);
}

async function open(link) {
  const windows = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const found = windows.find((window) => window.url.startsWith(root) && "focus" in window);
  if (!found) return self.clients.openWindow(root + link);
  await found.focus();
  return found.navigate(root + link).catch(() => self.clients.openWindow(root + link));
}
