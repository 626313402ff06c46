// Search, theme, menu and copy buttons of the documentation.
"use strict";

const root = document.documentElement.dataset.root;
const query = document.getElementById("query");
const results = document.getElementById("results");

// Theme: the system's, or the stored choice.
const themes = ["system", "light", "dark"];
const themeButton = document.getElementById("theme");
function readTheme() {
  try {
    return localStorage.getItem("theme") ?? "system";
  } catch {
    return "system";
  }
}
function applyTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const label = document.createElement("span");
  label.textContent = "Theme: ";
  themeButton.replaceChildren(label, theme);
}
applyTheme(readTheme());
themeButton.addEventListener("click", () => {
  const next = themes[(themes.indexOf(readTheme()) + 1) % themes.length];
  try {
    localStorage.setItem("theme", next);
  } catch {
    // Without storage the choice lasts for this page.
  }
  applyTheme(next);
});

// The navigation is longer than the screen: show the entry of this page.
const pages = document.getElementById("pages");
const current = pages.querySelector("[aria-current]");
if (current && current.offsetTop > pages.clientHeight / 2) pages.scrollTop = current.offsetTop - pages.clientHeight / 2;

const menu = document.getElementById("menu");
menu.addEventListener("click", () => {
  const isOpen = pages.classList.toggle("open");
  menu.setAttribute("aria-expanded", String(isOpen));
});

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const text = button.parentElement.querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.parentElement.querySelector("code"));
      button.textContent = "Press Ctrl-C";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

// Search. The stems and the stop words are those of the index: cli/src/docs/search.rs.
const endings = [["ation", "", 10], ["ies", "y", 5], ["ing", "", 6], ["ed", "", 5], ["es", "e", 5], ["s", "", 4]];
function withoutEnding(word) {
  for (const [ending, replacement, length] of endings) {
    if ([...word].length >= length && word.endsWith(ending) && !word.endsWith("ss")) {
      return (word.slice(0, -ending.length) + replacement).replace(/e+$/, "");
    }
  }
  return word.replace(/e+$/, "");
}
function stem(word) {
  return withoutEnding(word).replace(/([a-rt-z])\1$/, "$1");
}

let index;
async function loadIndex() {
  if (!index) {
    const response = await fetch(`${root}search.json`);
    index = await response.json();
    index.words = Object.keys(index.postings);
  }
  return index;
}

function search({ sections, postings, words, stopWords }, text) {
  const scores = new Map();
  const stems = text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter((word) => word && !stopWords.includes(word)).map(stem);
  for (const [position, wanted] of stems.entries()) {
    const best = new Map();
    // The last word may be unfinished, and an unknown word may be the start of a known one.
    const isPrefix = wanted.length >= 3 && (position === stems.length - 1 || !Object.hasOwn(postings, wanted));
    for (const word of words) {
      if (word !== wanted && !(isPrefix && word.startsWith(wanted))) continue;
      const factor = word === wanted ? 1 : 0.5;
      for (const [section, score] of postings[word]) {
        best.set(section, Math.max(best.get(section) ?? 0, score * factor));
      }
    }
    for (const [section, score] of best) {
      const { sum, matched } = scores.get(section) ?? { sum: 0, matched: 0 };
      scores.set(section, { sum: sum + score, matched: matched + 1 });
    }
  }
  return [...scores]
    .map(([section, { sum, matched }]) => [section, sum * matched])
    .sort((a, b) => b[1] - a[1] || a[0] - b[0])
    .slice(0, 8)
    .map(([section]) => sections[section]);
}

function show(found) {
  const items = found.map((section) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `${root}${section.page}.html${section.anchor ? `#${section.anchor}` : ""}`;
    const title = document.createElement("b");
    title.textContent = section.anchor ? `${section.title} › ${section.heading}` : section.title;
    const excerpt = document.createElement("span");
    excerpt.textContent = section.excerpt;
    link.append(title, excerpt);
    item.append(link);
    return item;
  });
  if (items.length === 0) {
    const item = document.createElement("li");
    item.className = "empty";
    item.textContent = "No page contains these words.";
    items.push(item);
  }
  results.replaceChildren(...items);
  results.hidden = false;
}

query.addEventListener("input", async () => {
  const text = query.value.trim();
  if (!text) {
    results.hidden = true;
    return;
  }
  const loaded = await loadIndex();
  if (query.value.trim() === text) show(search(loaded, text));
});

query.addEventListener("keydown", (event) => {
  const links = [...results.querySelectorAll("a")];
  const selected = links.findIndex((link) => link.getAttribute("aria-selected") === "true");
  const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (move && links.length > 0) {
    event.preventDefault();
    links[selected]?.removeAttribute("aria-selected");
    const next = links[(selected + move + links.length) % links.length] ?? links[0];
    next.setAttribute("aria-selected", "true");
    next.scrollIntoView({ block: "nearest" });
  } else if (event.key === "Enter" && links.length > 0) {
    (links[selected] ?? links[0]).click();
  } else if (event.key === "Escape") {
    results.hidden = true;
  }
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, textarea");
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    query.focus();
  }
});
document.addEventListener("click", (event) => {
  if (!event.target.closest("search")) results.hidden = true;
});
