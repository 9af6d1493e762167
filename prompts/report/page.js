"use strict";
const pick = (id) => document.getElementById(id);
const items = [...document.querySelectorAll(".item")].map((node) => ({
  node,
  verdict: node.dataset.verdict,
  reason: node.dataset.reason,
  drawn: node.dataset.drawn,
  tools: new Set(JSON.parse(node.dataset.tools)),
  text: null,
}));
// Texts are read when the first word is searched for: the page opens without that.
const says = (item, word) => (item.text ??= item.node.textContent.toLowerCase()).includes(word);
let picked = null;
function filter() {
  const [words, verdict, reason, tool] = ["search", "verdict", "reason", "tool"].map((id) => pick(id).value);
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const item of items) {
    const fits =
      (!verdict || item.verdict === verdict) &&
      (!reason || item.reason === reason) &&
      (!tool || item.tools.has(tool)) &&
      (!picked || picked.has(item)) &&
      wanted.every((word) => says(item, word));
    item.node.hidden = !fits;
    shown += fits;
  }
  pick("count").textContent = `${shown} of ${items.length}`;
  pick("none").hidden = shown > 0;
}
for (const id of ["search", "verdict", "reason", "tool"]) pick(id).addEventListener("input", filter);
document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
pick("twenty").addEventListener("click", () => {
  const drawn = items.filter((item) => item.drawn === "random");
  for (let i = drawn.length - 1; i > 0; i -= 1) {
    const j = Math.floor(Math.random() * (i + 1));
    [drawn[i], drawn[j]] = [drawn[j], drawn[i]];
  }
  picked = picked ? null : new Set(drawn.slice(0, 20));
  pick("twenty").textContent = picked ? "the whole sample" : "20 at random";
  filter();
});
// A link to an item shows it even while a filter hides it.
function follow() {
  const item = items.find((each) => `#${each.node.id}` === decodeURIComponent(location.hash));
  if (!item) return;
  item.node.hidden = false;
  item.node.open = true;
  item.node.scrollIntoView();
}
addEventListener("hashchange", follow);
pick("all").addEventListener("click", () => {
  const open = pick("all").textContent === "open all";
  for (const item of items) if (!item.node.hidden) item.node.open = open;
  pick("all").textContent = open ? "close all" : "open all";
});
filter();
follow();
