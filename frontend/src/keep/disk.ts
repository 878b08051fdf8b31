/** What this browser keeps: a few object stores in IndexedDB. Works on plain HTTP too. */

const name = "everturn";
const version = 1;
export type StoreName = "outbox" | "files";

export class Disk {
  private opening: Promise<IDBDatabase> | null = null;

  private open(): Promise<IDBDatabase> {
    this.opening ??= new Promise((resolve, reject) => {
      const request = indexedDB.open(name, version);
      request.onupgradeneeded = () => {
        request.result.createObjectStore("outbox", { keyPath: "key" });
        request.result.createObjectStore("files", { keyPath: "id" });
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
    return this.opening;
  }

  private async run<T>(store: StoreName, mode: IDBTransactionMode, act: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
    const database = await this.open();
    return new Promise((resolve, reject) => {
      const transaction = database.transaction(store, mode, { durability: "strict" });
      const request = act(transaction.objectStore(store));
      // The request succeeds before the data is on disk; only the transaction's end means kept.
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = transaction.onerror = () => reject(transaction.error ?? request.error);
    });
  }

  all<T>(store: StoreName): Promise<T[]> {
    return this.run(store, "readonly", (place) => place.getAll() as IDBRequest<T[]>);
  }
  get<T>(store: StoreName, key: string): Promise<T | undefined> {
    return this.run(store, "readonly", (place) => place.get(key) as IDBRequest<T | undefined>);
  }
  async put(store: StoreName, value: unknown): Promise<void> {
    await this.run(store, "readwrite", (place) => place.put(value));
  }
  async delete(store: StoreName, key: string): Promise<void> {
    await this.run(store, "readwrite", (place) => place.delete(key));
  }
}

export function readText(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    // Storage is switched off by the reader: the page works, it only remembers less.
    return null;
  }
}

export function writeText(key: string, value: string | null): void {
  try {
    if (value === null || value === "") localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // As above; nothing that the server acknowledged depends on it.
  }
}
