/** What stands for characters that would not be seen. Another language is another object of this shape. */

export const exactWords = {
  blankLines: (count: number) => `${count.toLocaleString("en")} blank lines`,
  spaces: (count: number) => `${count.toLocaleString("en")} spaces`,
};
