// What shows values: the pointer, the keyboard, the screen reader.

class Tip {
  constructor(plot) {
    this.plot = plot;
    this.box = el("div", { class: "tip", hidden: "" });
    this.live = el("div", { class: "unseen", "aria-live": "polite" });
    plot.append(this.box, this.live);
  }
  show(x, y, title, rows, speak, titleColor = null) {
    this.box.replaceChildren(el("span", { class: titleColor ? `at key block ${titleColor}` : "at" }, title));
    for (const [name, value, color] of rows) {
      this.box.append(el("div", {}, el("span", color ? { class: `key block ${color}` } : {}, name), el("b", {}, value)));
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

// Wires a plot: `at(x, y in pixels)` gives an index, `show(index, speak)` shows it, `hide()` takes it away. Curves are walked
// from left to right and begin at their end; rows are walked downwards and begin at the top.
function explore(plot, count, at, show, hide, rows = false) {
  let index = null;
  const first = () => (rows ? 0 : count() - 1), [back, on] = rows ? ["ArrowUp", "ArrowDown"] : ["ArrowLeft", "ArrowRight"];
  const under = (e) => { const box = plot.getBoundingClientRect(); return at(e.clientX - box.left, e.clientY - box.top); };
  const go = (i, speak) => { index = Math.max(0, Math.min(count() - 1, i)); show(index, speak); };
  const leave = () => { hide(); };
  plot.addEventListener("pointermove", (e) => go(under(e), false));
  plot.addEventListener("pointerdown", (e) => go(under(e), false));
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) go(index ?? first(), true); });
  plot.addEventListener("blur", leave);
  plot.addEventListener("keydown", (e) => {
    const n = count(), from = index ?? first(), far = Math.max(1, Math.round(n / 20));
    const to = { [back]: from - (e.shiftKey ? far : 1), [on]: from + (e.shiftKey ? far : 1), PageUp: from - far, PageDown: from + far, Home: 0, End: n - 1 }[e.key];
    if (e.key === "Escape") leave();
    if (to === undefined) return;
    e.preventDefault();
    go(to, true);
  });
}

// A choice of few, such as the scale of one chart; `choose(key)` is called when it changes.
let switches = 0;
function makeSwitch(legend, options, chosen, choose) {
  const name = `switch-${++switches}`;
  const labels = Object.entries(options).map(([key, text]) => {
    const input = el("input", { type: "radio", name, value: key, ...(key === chosen ? { checked: "" } : {}) });
    input.addEventListener("change", () => choose(key));
    return el("label", {}, input, el("span", {}, text));
  });
  return el("fieldset", { class: "switch of-chart" }, el("legend", {}, legend), ...labels);
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
