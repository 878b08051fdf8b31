/** What is asked before a move through the history changes files. Another language is another object of this shape. */

export const moveWords = {
  moves: {
    undo: {
      title: (turn: number | null) => (turn ? `Undo turn ${turn}?` : "Undo this turn?"),
      lead: (turn: number | null) =>
        `Conversation and files go back to ${!turn ? "before this turn" : turn > 1 ? `the end of turn ${turn - 1}` : "the start"}. You can redo this later.`,
      restore: (count: number) => `Undo and restore ${count === 1 ? "1 file" : `${count} files`}`,
      keepAll: "Undo and keep my files",
      conversation: "Undo conversation only",
    },
    redo: {
      title: () => "Redo this turn?",
      lead: () => "Conversation and files go forward to the end of this turn. You can undo this later.",
      restore: (count: number) => `Redo and restore ${count === 1 ? "1 file" : `${count} files`}`,
      keepAll: "Redo and keep my files",
      conversation: "Redo conversation only",
    },
    select: {
      title: () => "Show the other answer?",
      lead: () => "Conversation and files change to how that answer left them. You can go back later.",
      restore: (count: number) => `Show and restore ${count === 1 ? "1 file" : `${count} files`}`,
      keepAll: "Show and keep my files",
      conversation: "Show answer only",
    },
    retry: {
      title: () => "Retry this answer?",
      lead: () => "Files go back to how they were before this answer. The answer itself is kept.",
      restore: (count: number) => `Restore ${count === 1 ? "1 file" : `${count} files`} and retry`,
      keepAll: "Retry and keep my files",
      conversation: "Retry with files as they are",
    },
    edit: {
      title: () => "Send the edited message?",
      lead: () => "Files go back to how they were before the old message. Its answer is kept.",
      restore: (count: number) => `Restore ${count === 1 ? "1 file" : `${count} files`} and send`,
      keepAll: "Send and keep my files",
      conversation: "Send with files as they are",
    },
  },
  projectStays: "Files in this folder stay as they are.",
  filesWillChange: (count: number) => (count === 1 ? "1 file will change" : `${count} files will change`),
  restoredWords: { added: "comes back", changed: "as before", deleted: "removed" },
  movedMeanwhile: "The session has changed meanwhile. Nothing was done.",
  conflictCount: (at: number, count: number) => (count === 1 ? "1 conflict" : `Conflict ${at} of ${count}`),
  outsideNotUndone: "Commands that acted outside this folder are not undone.",
};
