/** What narrows the list and the search. Another language is another object of this shape. */

export const filterWords = {
  tags: "Tags",
  projects: "Folders",
  noLabels: "No tags or folders yet",
  selectSeveral: "Select several",
  who: "Written by",
  whoOf: [["", "Anyone"], ["user", "You"], ["assistant", "Everturn"], ["tool", "Tools"]],
  whenFound: "When",
  whenOf: [["", "Any time"], ["1", "Last day"], ["7", "Last 7 days"], ["30", "Last 30 days"], ["365", "Last year"]],
  between: "Between two days",
  from: "From",
  to: "To",
  tagFound: "Tag",
  anyTag: "Any tag",
};
