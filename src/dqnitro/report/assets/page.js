// Draws the charts of a page and makes its tables sort. No library, no network.
"use strict";
(() => {
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  // ---------- making elements; text always goes in as text

  function el(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
    node.append(...children);
    return node;
  }

  function svg(name, attributes = {}, text = null) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
    if (text !== null) node.textContent = text;
    return node;
  }

  // ---------- numbers as people read them

  const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
  const plain1 = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const plain5 = new Intl.NumberFormat("en", { maximumFractionDigits: 5 });
  const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

  function number(v) {
    const size = Math.abs(v);
    if (size !== 0 && size < 0.001) return v.toExponential(2);
    return (size < 100 ? precise : size < 1000 ? plain1 : whole).format(v);
  }

  function tickText(v) {
    const size = Math.abs(v);
    if (size !== 0 && size < 1e-4) return v.toExponential(0);
    return size < 10000 ? plain5.format(v) : compact.format(v).replace("K", "k");
  }

  function duration(s) {
    if (s < 60) return `${plain.format(s)} s`;
    const m = Math.floor(s / 60), pad = (n) => String(n).padStart(2, "0");
    return m < 60 ? `${m} min ${pad(Math.floor(s % 60))} s` : `${Math.floor(m / 60)} h ${pad(m % 60)} min`;
  }

  function durationTick(s, step) {
    if (s === 0) return "0";
    const m = s / 60, h = m / 60, round = (v) => plain.format(v);
    return step < 60 && s < 600 ? (s < 60 ? `${round(s)} s` : `${Math.floor(m)}:${String(Math.round(s % 60)).padStart(2, "0")}`)
      : step < 3600 && h < 10 ? (m < 60 ? `${round(m)} min` : `${Math.floor(h)}:${String(Math.round(m % 60)).padStart(2, "0")} h`)
      : `${round(h)} h`;
  }

  const AXES = {
    wall_s: { tick: durationTick, value: duration },
    steps: { tick: tickText, value: (v) => `${plain.format(v)} steps` },
  };
  const axisOf = (name) => AXES[name] ?? { tick: tickText, value: number };

  // ---------- scales

  function niceStep(range, count, steps = null) {
    const raw = range / Math.max(1, count);
    if (steps) return steps.find((s) => s >= raw) ?? 86400 * niceStep(range / 86400, count);
    const power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].find((m) => m * power >= raw * 0.999) * power;
  }

  function ticks(low, high, step) {
    const out = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) out.push(+(i * step).toPrecision(12));
    return out;
  }

  const TIME_STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

  function linear([a, b], [p, q]) {
    const k = (q - p) / (b - a || 1);
    return (v) => p + (v - a) * k;
  }

  function extent(lists) {
    let low = Infinity, high = -Infinity;
    for (const list of lists) for (const v of list) { if (v < low) low = v; if (v > high) high = v; }
    return [low, high];
  }

  function yScale(chart, height) {
    let [low, high] = extent([...chart.series.map((s) => s.y), (chart.marks ?? []).map((m) => m.y)]);
    if (chart.scale === "log") {
      const a = Math.log10(low), b = Math.log10(high), pad = (b - a) * 0.04;
      const to = linear([a - pad, b + pad], [height, 0]);
      // Few decades: 1, 2 and 5 of each; many: every so manieth power of ten.
      const powers = ticks(Math.floor(a), Math.ceil(b), Math.max(1, Math.ceil((b - a) / 6)));
      const at = powers.flatMap((e) => (b - a < 1.7 ? [1, 2, 5] : [1]).map((m) => +`${m}e${e}`));
      return { to: (v) => to(Math.log10(v)), ticks: at.filter((v) => v >= 10 ** (a - pad) && v <= 10 ** (b + pad)) };
    }
    if (chart.zero) low = Math.min(0, low);
    if (low === high) { low -= Math.abs(low) * 0.1 || 1; high += Math.abs(high) * 0.1 || 1; }
    const pad = (high - low) * 0.05;
    const bottom = chart.zero && low === 0 ? 0 : low - pad;
    return { to: linear([bottom, high + pad], [height, 0]), ticks: ticks(bottom, high + pad, niceStep(high - low, height / 40)) };
  }

  function nearest(xs, x) {
    let a = 0, b = xs.length - 1;
    while (a < b) { const m = (a + b) >> 1; if (xs[m] < x) a = m + 1; else b = m; }
    return a > 0 && x - xs[a - 1] <= xs[a] - x ? a - 1 : a;
  }

  // ---------- what shows values: the pointer, the keyboard, the screen reader

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

  // ---------- curves and dots

  const HEIGHT = { large: 340, small: 210, flat: 150 };

  // Lines keep their shape when points are left out; a cloud of dots gets thinner, so the legend says by how much.
  const thinned = (s) => (s.style === "dots" && s.of > s.y.length ? ` (${plain.format(s.y.length)} of ${plain.format(s.of)} shown)` : "");

  // The picture of a chart at one size over one axis: an SVG, its scales, and an empty group for the cross hair.
  function pictureXY(chart, axis, width, height) {
    const right = width - 8, bottom = 26, top = 8, h = height - top - bottom, y = yScale(chart, h);
    const left = Math.max(46, 14 + 7.5 * Math.max(0, ...y.ticks.map((v) => tickText(v).length)));
    let [x0, x1] = extent([...chart.series.map((s) => s.x[axis]), chart.until ? [chart.until[axis]] : []]);
    if (axis in AXES) x0 = Math.min(0, x0);
    if (x0 === x1) x1 = x0 + 1;
    const x = linear([x0, x1], [left, right]);
    const step = niceStep(x1 - x0, (width - left) / 75, axis === "wall_s" ? TIME_STEPS : null);
    const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const g = svg("g", { transform: `translate(0 ${top})` }), cross = svg("g");
    const across = (css, py) => svg("line", { class: css, x1: left, x2: right, y1: py, y2: py });
    for (const v of y.ticks) {
      g.append(across("grid", y.to(v)), svg("text", { x: left - 8, y: y.to(v) + 4, "text-anchor": "end" }, tickText(v)));
    }
    g.append(across("base", h));
    for (const v of ticks(x0, x1, step)) {
      const px = x(v), edge = px > right - 20 ? "end" : px < left + 10 ? "start" : "middle";
      g.append(svg("text", { class: "x-tick", x: edge === "end" ? right : px, y: h + 19, "text-anchor": edge }, axisOf(axis).tick(v, step)));
    }
    for (const s of chart.series) g.append(svg("path", { class: `${s.style} ${s.color}${s.y.length < 80 ? " few" : ""}`, d: path(s, axis, x, y.to) }));
    for (const m of chart.marks ?? []) {
      const py = y.to(m.y);
      g.append(across("mark", py), svg("text", { class: "mark-label", x: left + 6, y: py + (py < 18 ? 16 : -6) }, m.label));
    }
    g.append(cross);
    image.append(g);
    return { image, cross, h, x, y: y.to, xAt: linear([left, right], [x0, x1]) };
  }

  function drawXY(figure, chart) {
    const series = chart.series;
    const keys = series.map((s) => el("span", { class: `key ${s.style === "dots" ? "dots" : ""} ${s.color}` }, s.name + thinned(s)));
    figure.append(el("div", { class: "legend" }, ...keys));
    const plot = makePlot(figure, `${chart.title}: ${series.map((s) => s.name).join(", ")}`);
    const tip = new Tip(plot), height = figure.classList.contains("large") ? HEIGHT.large : HEIGHT.small;
    // The pointer follows the series with the most points: the others have their nearest ones close by.
    const lead = series.reduce((a, b) => (b.y.length > a.y.length ? b : a));
    let axis = Object.keys(chart.axes)[0], view = null;

    function draw() {
      const next = pictureXY(chart, axis, Math.max(240, plot.clientWidth), height);
      if (view) view.image.replaceWith(next.image); else plot.prepend(next.image);
      view = next;
      tip.hide();
      figure.dataset.axis = axis;
    }

    function show(i, speak) {
      const value = lead.x[axis][i], px = view.x(value), rows = [];
      view.cross.replaceChildren(svg("line", { class: "cross", x1: px, x2: px, y1: 0, y2: view.h }));
      for (const s of series) {
        const j = s === lead ? i : nearest(s.x[axis], value);
        view.cross.append(svg("circle", { class: `here ${s.color}`, cx: view.x(s.x[axis][j]), cy: view.y(s.y[j]), r: 4.5 }));
        rows.push([s.name, number(s.y[j]), s.color]);
      }
      tip.show(px, 4, Object.keys(chart.axes).map((a) => axisOf(a).value(lead.x[a][i])).join(" · "), rows, speak);
    }

    explore(plot, () => lead.y.length, (px) => nearest(lead.x[axis], view.xAt(px)), show, () => { view.cross.replaceChildren(); tip.hide(); });
    draw();
    onResize(plot, draw);
    document.addEventListener("x-axis", (e) => { if (e.detail in chart.axes) { axis = e.detail; draw(); } });
    figure.dataset.points = series.reduce((n, s) => n + s.y.length, 0);
  }

  // One path per series, dots too (lines of no length with round ends): thousands of elements would make a phone crawl.
  function path(s, axis, x, y) {
    const xs = s.x[axis], out = [];
    for (let i = 0; i < xs.length; i++) {
      const p = `${x(xs[i]).toFixed(1)} ${y(s.y[i]).toFixed(1)}`;
      out.push(s.style === "dots" ? `M${p}h0` : `${i ? "L" : "M"}${p}`);
    }
    if (s.style === "line" && xs.length === 1) out.push("h.1");
    return out.join("");
  }

  // ---------- bars of parts

  function drawStack(figure, chart) {
    const unit = chart.unit ? ` ${chart.unit}` : "";
    const longest = Math.max(...chart.rows.map((r) => r.parts.reduce((n, p) => n + p.value, 0)));
    for (const row of chart.rows) {
      const total = row.parts.reduce((n, p) => n + p.value, 0);
      if (chart.rows.length > 1 || unit) figure.append(el("p", { class: "bar-label" }, row.label + (unit ? `: ${number(total)}${unit}` : "")));
      const bar = el("div", { class: "bar" });
      bar.style.width = `${(100 * total) / longest}%`;
      const holder = el("div", { class: "holder" }, bar);
      holder.style.position = "relative";
      figure.append(holder);
      const tip = new Tip(holder);
      row.parts.forEach((part, i) => {
        const { about, color } = chart.legend[i], percent = `${((100 * part.value) / total).toFixed(1)}%`;
        const value = unit ? `${percent}, ${number(part.value)}${unit}` : percent;
        if (part.value <= 0) return;
        const box = el("div", { class: color, tabindex: "0", role: "img", "aria-label": `${part.name}, ${about}: ${value}` });
        box.style.flex = `${part.value} 0 0`;
        box.append(el("span", {}, part.name));
        const show = (speak) => tip.show(box.offsetLeft, 60, about || part.name, [[part.name, value, color]], speak);
        box.addEventListener("pointerenter", () => show(false));
        box.addEventListener("focus", () => show(true));
        for (const gone of ["pointerleave", "blur"]) box.addEventListener(gone, () => tip.hide());
        bar.append(box);
      });
      // A name is shown where it fits whole; the list below has all of them.
      new ResizeObserver(() => {
        for (const span of $$("span", bar)) span.classList.toggle("tight", span.offsetWidth + 10 > span.parentElement.clientWidth);
      }).observe(bar);
    }
    const first = chart.rows[0], total = first.parts.reduce((n, p) => n + p.value, 0);
    const body = chart.legend.map((l, i) => el("tr", {},
      el("td", {}, el("span", { class: `key block ${l.color}` }, l.name)), el("td", { class: "about" }, l.about),
      ...(chart.rows.length > 1 ? [] : [
        el("td", { class: "number" }, `${((100 * first.parts[i].value) / total).toFixed(1)}%`),
        ...(unit ? [el("td", { class: "number" }, `${number(first.parts[i].value)}${unit}`)] : []),
      ])));
    figure.append(el("table", { class: "parts" }, el("tbody", {}, ...body)));
    figure.dataset.points = chart.rows.reduce((n, r) => n + r.parts.length, 0);
  }

  // ---------- single values with mean and interval

  function drawStrip(figure, chart) {
    const values = [...chart.values].sort((a, b) => a - b);
    const keys = [["dots c2", chart.name], ["thick c1", "mean"], ["wide c1", "95% interval"]];
    figure.append(el("div", { class: "legend" }, ...keys.map(([css, text]) => el("span", { class: `key ${css}` }, text))));
    const plot = makePlot(figure, `${chart.title}: mean ${number(chart.mean)}, 95% interval ${number(chart.low)} to ${number(chart.high)}`);
    const tip = new Tip(plot);
    let image = null, view = null;
    function draw() {
      const width = Math.max(240, plot.clientWidth), base = HEIGHT.flat - 30;
      let [low, high] = extent([values, [chart.low, chart.high]]);
      if (low === high) { low -= 1; high += 1; }
      const x = linear([low, high], [16, width - 16]), next = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT.flat}`, "aria-hidden": "true" });
      next.append(svg("line", { class: "base", x1: 0, x2: width, y1: base, y2: base }));
      // Scores are whole numbers in most games: then nothing lies between them.
      const step = Math.max(values.every(Number.isInteger) ? 1 : 0, niceStep(high - low, width / 90));
      for (const v of ticks(low, high, step)) next.append(svg("text", { x: x(v), y: base + 20, "text-anchor": "middle" }, tickText(v)));
      next.append(svg("rect", { class: "interval", x: x(chart.low), y: 0, width: Math.max(2, x(chart.high) - x(chart.low)), height: base }));
      next.append(svg("line", { class: "mean", x1: x(chart.mean), x2: x(chart.mean), y1: 0, y2: base }));
      // Equal scores pile up instead of hiding one another.
      const piles = new Map(), spots = values.map((v) => {
        const column = Math.round(x(v) / 9), k = piles.get(column) ?? 0;
        piles.set(column, k + 1);
        return [x(v), column, k];
      });
      const tallest = Math.max(...piles.values()), gap = Math.min(10, (base - 12) / tallest);
      const dots = spots.map(([px, , k]) => [px, base - 7 - k * gap]);
      next.append(svg("path", { class: "dots c2", d: dots.map(([px, py]) => `M${px.toFixed(1)} ${py.toFixed(1)}h0`).join(""), style: `stroke-width:${Math.min(8, Math.max(3, gap - 1.5))};opacity:.8` }));
      const cross = svg("g", {});
      next.append(cross);
      if (image) image.replaceWith(next); else plot.prepend(next);
      image = next;
      view = { dots, cross };
    }
    function show(i, speak) {
      const [px, py] = view.dots[i];
      view.cross.replaceChildren(svg("circle", { class: "here c2", cx: px, cy: py, r: 6 }));
      tip.show(px, 4, `${i + 1} of ${values.length}, lowest first`, [[chart.name, number(values[i]), "c2"], ["mean", number(chart.mean), "c1"], ["95% interval", `${number(chart.low)} to ${number(chart.high)}`, "c1"]], speak);
    }
    explore(plot, () => values.length, (px) => nearest(view.dots.map((d) => d[0]), px), show, () => { view.cross.replaceChildren(); tip.hide(); });
    draw();
    onResize(plot, draw);
    figure.dataset.points = values.length;
  }

  // ---------- tables

  function makeSortable(table) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    const key = (row, i) => { const c = row.cells[i], raw = c.dataset.sort ?? c.textContent; return [raw.trim() !== "" && Number.isFinite(+raw) ? +raw : NaN, raw]; };
    heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const h of heads) h.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      // Numbers come before words; the sort is stable, so sorting twice sorts by both.
      const rows = [...body.rows].map((row) => [row, key(row, i)]);
      rows.sort(([, [a, s]], [, [b, t]]) => {
        const words = Number.isNaN(a) - Number.isNaN(b);
        return sign * (words || (Number.isNaN(a) ? s.localeCompare(t, "en", { numeric: true }) : a - b));
      });
      body.append(...rows.map(([row]) => row));
    }));
  }

  function makeFilter(box) {
    const text = box.querySelector(".filter"), only = box.querySelector(".only-marked"), count = box.querySelector(".count");
    if (!text && !only) return;
    const rows = [...box.querySelector("tbody").rows];
    const apply = () => {
      const words = (text?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const has = row.textContent.toLowerCase(), keep = words.every((w) => has.includes(w)) && (!only?.checked || row.classList.contains("marked"));
        row.classList.toggle("hidden", !keep);
        shown += keep;
      }
      count.textContent = shown === rows.length ? "" : `${shown} of ${rows.length}`;
    };
    text?.addEventListener("input", apply);
    only?.addEventListener("change", apply);
    apply();
  }

  // ---------- the rest

  function makeCopy(button) {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      getSelection().selectAllChildren(code); // where the clipboard is closed to us, Ctrl-C still works on the selection
      try { await navigator.clipboard.writeText(code.textContent); button.textContent = "copied"; } catch { button.textContent = "selected"; }
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
  }

  function makeTheme(button) {
    const root = document.documentElement, store = (f) => { try { return f(localStorage); } catch { return null; } };
    const saved = store((s) => s.getItem("dqnitro-theme"));
    if (saved === "light" || saved === "dark") root.dataset.theme = saved;
    button.hidden = false;
    button.addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      store((s) => s.setItem("dqnitro-theme", root.dataset.theme));
    });
  }

  makeTheme(document.getElementById("theme"));
  const KINDS = { xy: drawXY, stack: drawStack, strip: drawStrip };
  for (const figure of $$("figure.chart")) {
    const chart = JSON.parse(figure.querySelector("script").textContent);
    KINDS[chart.kind](figure, chart);
  }
  $$("table.sortable").forEach(makeSortable);
  $$(".table").forEach(makeFilter);
  $$("button.copy").forEach(makeCopy);
  for (const input of $$('input[name="x-axis"]')) {
    const choose = () => document.dispatchEvent(new CustomEvent("x-axis", { detail: input.value }));
    input.addEventListener("change", choose);
    if (input.checked && !input.defaultChecked) choose(); // a browser that reloads keeps what was chosen
  }
})();
