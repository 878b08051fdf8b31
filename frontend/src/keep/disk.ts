/** What this browser keeps: a few object stores in IndexedDB. Works on plain HTTP too. */

const name = "everturn";
const version = 1;
export type StoreName = "outbox" | "files";

export class Disk {
  private opening: Promise<IDBDatabase> | null = null;
  /** What the disk refused, being full or switched off. It lasts as long as the page. */
  private readonly spare = new Map<string, unknown>();

  private open(): Promise<IDBDatabase> {
    this.opening ??= new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open(name, version);
      request.onupgradeneeded = () => {
        request.result.createObjectStore("outbox", { keyPath: "key" });
        request.result.createObjectStore("files", { keyPath: "id" });
      };
      request.onsuccess = () => {
        request.result.onclose = () => (this.opening = null);
        resolve(request.result);
      };
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

  /** Everything that was kept; nothing where storage is switched off. */
  all<T>(store: StoreName): Promise<T[]> {
    return this.run(store, "readonly", (place) => place.getAll() as IDBRequest<T[]>).catch(() => []);
  }
  async get<T>(store: StoreName, key: string): Promise<T | undefined> {
    const spare = this.spare.get(store + key) as T | undefined;
    return spare ?? this.run(store, "readonly", (place) => place.get(key) as IDBRequest<T | undefined>);
  }
  /** False: it is not on the disk and goes with this page. */
  async put(store: StoreName, key: string, value: unknown): Promise<boolean> {
    try {
      await this.run(store, "readwrite", (place) => place.put(value));
      this.spare.delete(store + key);
      return true;
    } catch {
      this.spare.set(store + key, value);
      return false;
    }
  }
  /** Only if it is still there: what another tab has taken away does not come back. */
  async update(store: StoreName, key: string, value: unknown): Promise<void> {
    const act = (place: IDBObjectStore): IDBRequest<IDBCursorWithValue | null> => {
      const request = place.openCursor(key);
      request.onsuccess = () => request.result?.update(value);
      return request;
    };
    // Where there is no room for it, what was there before stays, and has to do.
    await this.run(store, "readwrite", act).catch(() => undefined);
  }
  async delete(store: StoreName, key: string): Promise<void> {
    const isSpare = this.spare.delete(store + key);
    try {
      await this.run(store, "readwrite", (place) => place.delete(key));
    } catch (error) {
      if (!isSpare) throw error;
    }
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

/** False: the browser did not take it, being full or told not to. */
export function writeText(key: string, value: string | null): boolean {
  try {
    if (value === null || value === "") localStorage.removeItem(key);
    else localStorage.setItem(key, value);
    return true;
  } catch {
    return false;
  }
}
