import { Away, Problem, explain, type Api } from "../api/client";
import type { JobOutputPiece } from "../api/types";
import { bytes } from "../text/format";
import { tail } from "../state/live";
import { workWords } from "../work-words";
import { words } from "../words";

const pieceBytes = 64 * 1024;
const pauseMs = 1_000;
const downloadPieceBytes = 256 * 1024;

/** A job's output as it grows: its end at first, then what comes after it, also across a restart of the server. */
export class JobOutput {
  text = $state("");
  problem = $state("");
  /** All that was printed so far, in bytes. */
  total = $state(0);
  isRead = $state(false);
  private end = 0;
  private isOn = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly api: Api,
    private readonly job: string,
    private readonly isLive: () => boolean,
    private readonly pause = pauseMs,
  ) {}

  start(): void {
    this.isOn = true;
    void this.step();
  }

  stop(): void {
    this.isOn = false;
    clearTimeout(this.timer);
  }

  private async step(): Promise<void> {
    // Asked before reading: what a job prints last is there when it is over.
    const isLive = this.isLive();
    try {
      if (document.visibilityState === "visible") await this.read();
      this.problem = "";
    } catch (error) {
      if (error instanceof Problem) this.problem = error.code === "job_elsewhere" ? workWords.outputElsewhere : explain(error, words.serverAway);
      else if (!(error instanceof Away)) throw error;
      if (!isLive && error instanceof Problem) return;
      this.again();
      return;
    }
    if (isLive || !this.isRead) this.again();
  }

  private again(): void {
    clearTimeout(this.timer);
    if (this.isOn) this.timer = setTimeout(() => void this.step(), this.pause);
  }

  async read(): Promise<void> {
    if (!this.isRead) {
      const first = await this.piece(0, 1);
      this.total = first.total;
      this.end = Math.max(0, first.total - pieceBytes);
      if (this.end) this.text = `${workWords.outputBefore(bytes(this.end))}\n`;
    }
    for (;;) {
      const piece = await this.piece(this.end, pieceBytes);
      this.isRead = true;
      this.total = piece.total;
      if (piece.end <= this.end) return;
      const gap = piece.start > this.end ? `\n${workWords.outputGap(bytes(piece.start - this.end))}\n` : "";
      this.text = tail(this.text + gap + piece.text);
      this.end = piece.end;
      if (piece.end >= piece.total) return;
    }
  }

  private piece(after: number, limit: number): Promise<JobOutputPiece> {
    return this.api.get<JobOutputPiece>(`api/jobs/${this.job}/output`, { query: { after, limit } });
  }

  /** All that is kept, as one text. */
  async whole(): Promise<Blob> {
    const parts: string[] = [];
    for (let at = 0; ; ) {
      const piece = await this.piece(at, downloadPieceBytes);
      if (piece.start > at) parts.push(`\n${workWords.outputGap(bytes(piece.start - at))}\n`);
      parts.push(piece.text);
      if (piece.end <= at || piece.end >= piece.total) return new Blob(parts, { type: "text/plain" });
      at = piece.end;
    }
  }
}
