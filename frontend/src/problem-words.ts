/** What is said of an error of the server instead of its own words, by its code. English is the server's language: it says more
 * itself. Another language is another object of this shape. */

export const problemWords = {
  said: {} as Record<string, string>,
};
