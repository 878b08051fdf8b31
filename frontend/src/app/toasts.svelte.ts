import { Problem, explain } from "../api/client";
import { words } from "../words";

export interface Toast {
  id: number;
  text: string;
  /** Once it `isOver`, there is nothing left to do it to, and the toast goes. */
  action?: { label: string; run: () => void; isOver?: () => boolean };
}

const shownMax = 3;
const shortMs = 3_000;
const longMs = 9_500;

/** Short messages at the edge of the page. They go away by themselves. */
export class Toasts {
  all = $state.raw<readonly Toast[]>([]);
  private count = 0;

  show(text: string, action?: Toast["action"], isLong = !!action): void {
    const id = this.add(text, action);
    setTimeout(() => this.close(id), isLong ? longMs : shortMs);
  }

  /** Stays for as long as the work takes. */
  async during<T>(text: string, work: Promise<T>): Promise<T> {
    const id = this.add(text);
    try {
      return await work;
    } finally {
      this.close(id);
    }
  }

  private add(text: string, action?: Toast["action"]): number {
    this.count += 1;
    const toast: Toast = action ? { id: this.count, text, action } : { id: this.count, text };
    this.all = [...this.all.slice(1 - shownMax), toast];
    return toast.id;
  }

  close(id: number): void {
    this.all = this.all.filter((toast) => toast.id !== id);
  }

  complain(error: unknown): void {
    // The sign-in dialog is over the page then, and says it better.
    if (error instanceof Problem && error.status === 401) return;
    this.show(explain(error, words.serverAway), undefined, true);
  }
}
