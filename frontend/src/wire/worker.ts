/** The one connection of this browser: a SharedWorker that every tab of the page talks to. */

import { Hub, type FromHub, type Port, type ToHub } from "./hub";
import { hubParts, tickMs } from "./parts";

interface Ports {
  onconnect: ((event: MessageEvent) => void) | null;
}

// The worker's name carries the server's address: the page knows its own base path, a worker does not.
const root = self.name.slice("everturn ".length);
const hub = new Hub(hubParts(root));

(self as unknown as Ports).onconnect = (event) => {
  const channel = event.ports[0]!;
  const port: Port = { send: (message: FromHub) => channel.postMessage(message) };
  channel.onmessage = (heard: MessageEvent<ToHub>) => hub.hear(port, heard.data);
  channel.start();
};

setInterval(() => hub.tick(), tickMs);
