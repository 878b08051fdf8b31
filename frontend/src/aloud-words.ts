/** What reading aloud says. Another language is another object of this shape. */

export const aloudWords = {
  // read aloud
  readAloud: "Read aloud",
  stopReading: "Stop reading",
  codeLeftOut: "Code is left out.",
};
