// The keys of the pages. Everything works without this file; it only saves the mouse.
"use strict";

const rows = () => [...document.querySelectorAll("[data-rows] a:first-of-type")].filter(
  (link, number, all) => all.findIndex((other) => other.closest("tr, li") === link.closest("tr, li")) === number);

const move = (step) => {
  const links = rows();
  const at = links.indexOf(document.activeElement);
  const next = links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + step))];
  if (next) next.focus();
};

const follow = (selector) => {
  const link = document.querySelector(selector);
  if (link) link.click();
  return Boolean(link);
};

const help = () => document.getElementById("help").showModal();

const keys = {
  "/": () => document.querySelector(".search input").focus(),
  "?": help,
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  ArrowRight: () => rows().includes(document.activeElement) && document.activeElement.click(),
  ArrowLeft: () => follow("[data-up]"),
  d: () => follow("[data-diff]"),
};

document.addEventListener("keydown", (event) => {
  const field = event.target.closest("input, textarea, select, dialog, [contenteditable]");
  const inScroll = event.target.closest("[data-scroll]");
  if (event.key === "Escape" && event.target.matches(".search input")) {
    document.getElementById("found").replaceChildren();
    document.getElementById("main").focus();
    return;
  }
  if (event.key === "ArrowDown" && event.target.matches(".search input")) {
    const first = document.querySelector("#found a");
    if (first) { event.preventDefault(); first.focus(); }
    return;
  }
  if (field || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  if (event.key.startsWith("Arrow") && (inScroll || !(rows().length || event.key === "ArrowLeft"))) return;
  event.preventDefault();
  keys[event.key]();
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-help]")) help();
});
