// What shows values: the pointer, the keyboard, the screen reader.

class Tip {
  constructor(plot) {
    this.plot = plot;
    this.box = el("div", { class: "tip", hidden: "" });
    this.live = el("div", { class: "unseen", "aria-live": "polite" });
    plot.append(this.box, this.live);
  }
  show(x, y, title, rows, speak) {
    this.box.replaceChildren(el("span", { class: "at" }, title));
    for (const [name, value, color] of rows) {
      this.box.append(el("div", {}, el("span", { class: `key block ${color}` }, name), el("b", {}, value)));
    }
    this.box.hidden = false;
    const room = this.plot.clientWidth, w = this.box.offsetWidth;
    const left = x + 16 + w <= room ? x + 16 : x - 16 - w;
    this.box.style.left = `${Math.max(0, Math.min(room - w, left))}px`;
    this.box.style.top = `${Math.max(-10, y)}px`;
    if (speak) this.live.textContent = `${title}: ${rows.map(([n, v]) => `${n} ${v}`).join(", ")}`;
  }
  hide() { this.box.hidden = true; }
}

// Wires a plot: `at(x in pixels)` gives an index, `show(index, speak)` shows it, `hide()` takes it away.
function explore(plot, count, at, show, hide) {
  let index = null;
  const go = (i, speak) => { index = Math.max(0, Math.min(count() - 1, i)); show(index, speak); };
  const leave = () => { hide(); };
  plot.addEventListener("pointermove", (e) => go(at(e.clientX - plot.getBoundingClientRect().left), false));
  plot.addEventListener("pointerdown", (e) => go(at(e.clientX - plot.getBoundingClientRect().left), false));
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) go(index ?? count() - 1, true); });
  plot.addEventListener("blur", leave);
  plot.addEventListener("keydown", (e) => {
    const n = count(), from = index ?? n - 1, far = Math.max(1, Math.round(n / 20));
    const to = { ArrowLeft: from - (e.shiftKey ? far : 1), ArrowRight: from + (e.shiftKey ? far : 1), PageUp: from - far, PageDown: from + far, Home: 0, End: n - 1 }[e.key];
    if (e.key === "Escape") leave();
    if (to === undefined) return;
    e.preventDefault();
    go(to, true);
  });
}

function makePlot(figure, label) {
  const plot = el("div", { class: "plot", tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-label": `${label}. Arrow keys show values.` });
  figure.append(plot);
  return plot;
}

function onResize(plot, draw) {
  let width = plot.clientWidth;
  new ResizeObserver(() => { if (plot.clientWidth !== width) { width = plot.clientWidth; draw(); } }).observe(plot);
}
