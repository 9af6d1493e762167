"use strict";
const pick = (id) => document.getElementById(id);
const items = [...document.querySelectorAll(".item")].map((node) => ({
  node,
  verdict: node.dataset.verdict,
  reason: node.dataset.reason,
  tools: new Set(JSON.parse(node.dataset.tools)),
  text: node.textContent.toLowerCase(),
}));
function filter() {
  const [words, verdict, reason, tool] = ["search", "verdict", "reason", "tool"].map((id) => pick(id).value);
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const item of items) {
    const fits =
      (!verdict || item.verdict === verdict) &&
      (!reason || item.reason === reason) &&
      (!tool || item.tools.has(tool)) &&
      wanted.every((word) => item.text.includes(word));
    item.node.hidden = !fits;
    shown += fits;
  }
  pick("count").textContent = `${shown} of ${items.length}`;
  pick("none").hidden = shown > 0;
}
for (const id of ["search", "verdict", "reason", "tool"]) pick(id).addEventListener("input", filter);
document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
pick("all").addEventListener("click", () => {
  const open = pick("all").textContent === "open all";
  for (const item of items) if (!item.node.hidden) item.node.open = open;
  pick("all").textContent = open ? "close all" : "open all";
});
filter();
