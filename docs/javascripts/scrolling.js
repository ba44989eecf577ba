// A wide table scrolls in a box of its own; the keyboard can scroll the box only if it can have the focus.
window.addEventListener("load", () => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
    box.tabIndex = 0
    box.setAttribute("role", "group")
    box.setAttribute("aria-label", "Table")
  }
})
