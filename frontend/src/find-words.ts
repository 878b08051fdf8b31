/** What the list of sessions says of its filter. Another language is another object of this shape. */

export const findWords = {
  filter: "Filter or select sessions",
  shownTag: (tag: string) => `Tagged ${tag}`,
  showAll: "Show all sessions",
  nothing: "No sessions here",
  archive: "Archive",
  leaveArchive: "Leave the archive",
  archiveEmpty: "Nothing is archived",
};
