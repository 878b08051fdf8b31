/** What browsers have of the speech recognition API that the page uses. */
interface Recognition {
  interimResults: boolean;
  continuous: boolean;
  lang: string;
  onresult: (event: { results: ArrayLike<ArrayLike<{ transcript: string }>>; resultIndex: number }) => void;
  onend: () => void;
  start(): void;
  stop(): void;
}

const globals = window as unknown as Record<string, unknown>;
const Speech = (globals.SpeechRecognition ?? globals.webkitSpeechRecognition) as (new () => Recognition) | undefined;

/** Dictation by the browser's own speech recognition, where it has one. */
export class Dictation {
  isOn = $state(false);
  readonly isAvailable = !!Speech;
  private recognition: Recognition | null = null;

  constructor(private readonly onWords: (words: string) => void) {}

  toggle(): void {
    if (this.recognition) return this.recognition.stop();
    if (!Speech) return;
    const recognition = new Speech();
    recognition.continuous = true;
    recognition.interimResults = false;
    recognition.lang = navigator.language;
    recognition.onresult = (event) => {
      for (let index = event.resultIndex; index < event.results.length; index += 1) this.onWords(event.results[index]![0]!.transcript.trim());
    };
    recognition.onend = () => {
      this.recognition = null;
      this.isOn = false;
    };
    recognition.start();
    this.recognition = recognition;
    this.isOn = true;
  }
}
