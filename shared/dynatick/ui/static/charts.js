// Charts: one scale for those that are loaded apart, one stop of the Tab key for each, and what a bar says when it is
// pointed at, focused or tapped.
(() => {
  const STEP = 10, SEEN = 2.5, FAILURES_SEEN = 3; // pixels that a bar has at least, and a mark of failed attempts
  const NAMED = 9, TEXT = 9; // where the largest number stands, and how high one is
  const charts = "[data-chart]";
  const barOf = (node) => (node instanceof Element ? node.closest(".bars a") : null);
  const chartOf = (bar) => bar.closest(charts) || bar.closest(".bars");
  const barsOf = (chart) => [...chart.querySelectorAll("a")].filter((link) => link.closest(".bars"));

  const LINE = /M(\S+) ([\d.]+)V([\d.]+)/g, SHORT = /(?:(\d+):)?(?:([\d.]+)-)?([\d.]+)/g;
  // The parts of bars that a path has: where, from its bottom, to its top.
  function drawnBy(path, base) {
    if (path.dataset.bars === undefined) {
      return [...(path.dataset.drawn ??= path.getAttribute("d")).matchAll(LINE)].map(([, x, from, to]) => [Number(x), Number(from), Number(to)]);
    }
    let at = 0;
    return [...path.dataset.bars.matchAll(SHORT)].map(([, x, from, to]) => {
      at = x === undefined ? at + STEP : Number(x);
      return [at, from === undefined ? base : Number(from), Number(to)];
    });
  }
  const print = (chart, what, text) => chart.querySelectorAll(`[data-shows="${what}"]`).forEach((node) => { node.textContent = text; });

  // As middle() of chart.py.
  function middleOf(largest) {
    if (largest < 2) return null;
    for (let power = 10 ** (String(largest).length - 1); power >= 1; power /= 10) {
      for (const step of [5 * power, 2 * power, power]) {
        const value = step * Math.floor((largest + step) / (2 * step));
        if (2 * largest <= 5 * value && 5 * value <= 3 * largest) return value;
      }
    }
    return 2;
  }

  // The largest number of all parts has the whole height.
  function scale(chart) {
    const parts = [...chart.querySelectorAll(".bars[data-base]")];
    if (!parts.length) return;
    const [largest, failures] = ["largest", "failures"].map((name) => Math.max(...parts.map((part) => Number(part.dataset[name]))));
    for (const part of parts) {
      const base = Number(part.dataset.base), height = part.viewBox.baseVal.height;
      const paths = [...part.querySelectorAll("path[data-scaled=largest]")];
      const share = largest ? part.dataset.largest / largest : 1;
      const tops = new Map(), last = new Map(); // of each bar: where it ends, and the kind that matters most in it
      for (const path of paths) for (const [x, , to] of drawnBy(path, base)) {
        tops.set(x, base - (base - to) * share);
        last.set(x, path);
      }
      for (const path of paths) {
        path.setAttribute("d", drawnBy(path, base).map(([x, from, to]) => {
          if (base - tops.get(x) >= SEEN) return `M${x} ${(base - (base - from) * share).toFixed(2)}V${(base - (base - to) * share).toFixed(2)}`;
          return path === last.get(x) ? `M${x} ${base}V${base - SEEN}` : "";
        }).join(""));
      }
      const below = part.querySelector("path[data-scaled=failures]");
      const failed = failures ? part.dataset.failures / failures : 1;
      below.setAttribute("d", drawnBy(below, height).map(([x, , to]) => `M${x} ${height}V${(height - Math.max(FAILURES_SEEN, (height - to) * failed)).toFixed(2)}`).join(""));
    }
    print(chart, "largest", largest.toLocaleString("en"));
    const middle = middleOf(largest), above = middle ? 1 - middle / largest : 1; // the rest of the height is below it
    for (const part of parts) part.querySelector("path[data-grid]").setAttribute("d", `M0 ${(part.dataset.base * above).toFixed(1)}H${part.viewBox.baseVal.width}`);
    for (const part of parts) {
      const line = part.querySelector("path.capacity"), share = part.dataset.capacity / largest;
      if (line && share <= 1) line.setAttribute("d", `M0 ${(part.dataset.base * (1 - share)).toFixed(1)}H${part.viewBox.baseVal.width}`);
      else line?.removeAttribute("d");
    }
    print(chart, "middle", middle ? middle.toLocaleString("en") : "");
    for (const text of chart.querySelectorAll("[data-shows=middle]")) { // which keeps off those above and below it
      const base = Number(text.nextElementSibling.getAttribute("y"));
      text.setAttribute("y", Math.max(NAMED + TEXT, Math.min(base * above + TEXT / 2, base - TEXT)).toFixed(1));
    }
    print(chart, "failures", failures.toLocaleString("en"));
  }

  function prepare() {
    for (const title of document.querySelectorAll(".bars a > title")) { // a browser would show it too, late
      title.parentElement.setAttribute("aria-label", title.textContent);
      title.remove();
    }
    for (const hit of document.querySelectorAll(".bars a + a > .hit:not([x])")) { // it follows the one before
      const before = hit.parentElement.previousElementSibling.lastElementChild;
      hit.setAttribute("x", Number(before.getAttribute("x")) + Number(before.getAttribute("width")));
    }
    for (const chart of document.querySelectorAll(charts)) {
      scale(chart);
      const bars = barsOf(chart);
      const stop = bars.find((bar) => bar === document.activeElement) || bars.find((bar) => bar.getAttribute("tabindex") === "0") || bars[0];
      for (const bar of bars) bar.setAttribute("tabindex", bar === stop ? "0" : "-1");
    }
  }

  // -- what a bar says ------------------------------------------------------------------------------------------------

  let shown = null;
  function show(bar, more = "") {
    let tip = document.querySelector(".tip");
    if (!tip) {
      tip = document.createElement("div");
      tip.className = "tip";
      tip.dataset.testid = "tip";
      tip.setAttribute("aria-hidden", "true"); // a screen reader says it as the link's name
      document.body.append(tip);
    }
    shown = bar;
    tip.hidden = false;
    tip.textContent = bar.getAttribute("aria-label") + more;
    const box = bar.getBoundingClientRect();
    const middle = box.left + box.width / 2 - tip.offsetWidth / 2;
    const left = Math.max(4, Math.min(middle, document.documentElement.clientWidth - tip.offsetWidth - 4));
    const above = box.top - tip.offsetHeight - 6;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above > 0 ? above : box.bottom + 6) + scrollY}px`;
  }
  function hide() {
    shown = null;
    const tip = document.querySelector(".tip");
    if (tip) tip.hidden = true;
  }
  addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const bar = barOf(event.target);
    if (bar) show(bar);
    else if (shown && shown !== document.activeElement) hide();
  });
  addEventListener("focusin", (event) => {
    const bar = barOf(event.target);
    if (bar) show(bar);
    else hide();
  });
  addEventListener("focusout", hide);
  addEventListener("click", (event) => { // the first tap says what a bar is, the second one opens it
    const bar = barOf(event.target);
    if (!bar || event.pointerType !== "touch") {
      if (!bar) hide();
      return;
    }
    if (bar.dataset.tapped === undefined) {
      event.preventDefault();
      document.querySelectorAll(".bars a[data-tapped]").forEach((other) => delete other.dataset.tapped);
      bar.dataset.tapped = "";
      show(bar, "; tap again to open it");
    }
  }, true);

  // -- arrow keys -----------------------------------------------------------------------------------------------------

  // The bar of the next row up or down that is nearest.
  function beyond(bar, bars, down) {
    const box = bar.getBoundingClientRect();
    const middle = box.left + box.width / 2;
    let found = null, best = Infinity;
    for (const other of bars) {
      const one = other.getBoundingClientRect();
      const rows = down ? one.top - box.bottom : box.top - one.bottom;
      if (rows < -1) continue;
      const far = rows * 1e4 + Math.abs(one.left + one.width / 2 - middle);
      if (far < best) [found, best] = [other, far];
    }
    return found;
  }

  addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const bar = barOf(event.target);
    if (!bar || event.ctrlKey || event.metaKey || event.altKey) return;
    const bars = barsOf(chartOf(bar)), at = bars.indexOf(bar);
    const next = {
      ArrowRight: () => bars[at + 1], ArrowLeft: () => bars[at - 1], Home: () => bars[0], End: () => bars.at(-1),
      ArrowDown: () => beyond(bar, bars, true), ArrowUp: () => beyond(bar, bars, false),
    }[event.key];
    if (!next) return;
    event.preventDefault();
    const other = next();
    if (!other) return;
    bar.setAttribute("tabindex", "-1");
    other.setAttribute("tabindex", "0");
    other.focus();
  });

  // -- parts that come later, or once more ----------------------------------------------------------------------------

  let focused = null;
  document.addEventListener("DOMContentLoaded", prepare);
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    const bar = barOf(document.activeElement);
    focused = bar && detail.target.contains(bar) ? bar.getAttribute("href") : null;
  });
  document.addEventListener("htmx:afterSwap", () => {
    const again = focused && [...document.querySelectorAll(".bars a")].find((bar) => bar.getAttribute("href") === focused);
    prepare();
    if (again) again.focus({ preventScroll: true });
    focused = null;
  });
})();
