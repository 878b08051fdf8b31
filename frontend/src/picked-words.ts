/** What is done with several sessions. Another language is another object of this shape. */

export const pickedWords = {
  // several sessions
  selected: (count: number) => (count === 1 ? "1 selected" : `${count} selected`),
  selectionBar: "Selected sessions",
  archive: "Archive",
  unarchive: "Unarchive",
  delete: "Delete",
  tag: "Tag",
  tagName: "Tag to add",
  addTag: "Add",
  exportAs: "Export",
  exportForms: { md: "Markdown", html: "HTML", json: "JSON" },
  endSelection: "Done",
  archivedMany: (count: number) => (count === 1 ? "1 session archived" : `${count} sessions archived`),
  unarchivedMany: (count: number) => (count === 1 ? "1 session unarchived" : `${count} sessions unarchived`),
  deletedMany: (count: number) => (count === 1 ? "1 session deleted" : `${count} sessions deleted`),
  taggedMany: (count: number, tag: string) => `${count === 1 ? "1 session" : `${count} sessions`} tagged ${tag}`,
  notAll: (failed: number, why: string) => `${failed === 1 ? "1 session was" : `${failed} sessions were`} not changed. ${why}`,
};
