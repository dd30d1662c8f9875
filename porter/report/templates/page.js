"use strict";
(() => {
  const panes = document.querySelector(".panes");
  const $ = (sel, at = document) => [...at.querySelectorAll(sel)];
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  if (!panes) return;
  const ptx = $(".ptx .code div");
  const byKey = new Map();
  const add = (key, line) => byKey.has(key) ? byKey.get(key).push(line) : byKey.set(key, [line]);
  $(".code div[data-k]").forEach(line => line.dataset.k.split(" ").filter(Boolean).forEach(key => add(key, line)));
  const shown = key => {
    const file = key.split(":")[0];
    $(".file").forEach(f => { f.hidden = f.dataset.file !== file; });
    $(".tab").forEach(t => t.setAttribute("aria-pressed", String(t.dataset.file === file)));
  };
  const into = line => {
    const box = line.closest(".code");
    box.scrollTop = line.offsetTop - box.offsetTop - box.clientHeight / 3;
  };
  const mark = (keys, from) => {
    $(".mark").forEach(e => e.classList.remove("mark"));
    const lines = keys.flatMap(key => byKey.get(key) || []);
    lines.forEach(line => line.classList.add("mark"));
    if (from) from.classList.add("mark");
    if (keys.length && !(from && from.closest(".file"))) shown(keys[0]);
    const seen = new Set(from && from.closest(".code") ? [from.closest(".code")] : []);
    lines.forEach(line => {
      const box = line.closest(".code");
      if (!seen.has(box) && box.offsetParent) { seen.add(box); into(line); }
    });
  };
  panes.addEventListener("click", event => {
    const line = event.target.closest(".code div");
    if (line) mark((line.dataset.k || "").split(" ").filter(Boolean), line);
  });
  $(".group, .site").forEach(group => {
    const go = () => { mark((group.dataset.k || "").split(" ").filter(Boolean), group); };
    group.addEventListener("click", go);
    group.addEventListener("keydown", event => { if (event.key === "Enter") go(); });
  });
  $(".tab").forEach(tab => tab.addEventListener("click", () => shown(tab.dataset.file + ":0")));
  $(".file").forEach(file => {
    const [a, b] = $(".code", file);
    const sync = (one, other) => one.addEventListener("scroll", () => { other.scrollTop = one.scrollTop; });
    sync(a, b); sync(b, a);
  });
  let at = -1;
  const step = by => {
    const changes = $(".file:not([hidden]) .new .changed").filter(line =>
      !(line.previousElementSibling && line.previousElementSibling.classList.contains("changed")));
    if (!changes.length) return;
    at = (at + by + changes.length) % changes.length;
    into(changes[at]);
    mark([changes[at].dataset.k.split(" ")[0]], changes[at]);
  };
  document.getElementById("next").addEventListener("click", () => step(1));
  document.getElementById("previous").addEventListener("click", () => step(-1));
})();
