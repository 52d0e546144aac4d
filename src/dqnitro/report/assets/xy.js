// Curves and dots over one of several x axes.

const HEIGHT = { large: 360, small: 232, flat: 150 };
const UNITS = { wall_s: "wall clock since the first step", steps: "steps (decisions)", updates: "updates of the network" };

// Lines keep their shape when points are left out; a cloud of dots gets thinner, so the legend says by how much.
const thinned = (s) => (s.style === "dots" && s.of > s.y.length ? ` (${plain.format(s.y.length)} of ${plain.format(s.of)} shown)` : "");

// A series over one axis. Means over several runs have other values over each axis; the rest have one list of values for all.
const on = (s, axis) => s.curves?.[axis] ?? { x: s.x[axis], y: s.y };
const pointsOf = (s) => (s.curves ? Object.values(s.curves)[0].y.length : s.y.length);

// The picture of a chart at one size over one axis: an SVG, its scales, and an empty group for the cross hair.
function pictureXY(chart, axis, width, height) {
  const right = width - 8, bottom = 42, top = chart.y ? 22 : 8, h = height - top - bottom, y = yScale(chart, axis, h);
  const left = Math.max(46, 14 + 7.5 * Math.max(0, ...y.ticks.map((v) => tickText(v).length)));
  let [x0, x1] = extent([...chart.series.map((s) => on(s, axis).x), chart.until ? [chart.until[axis]] : []]);
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
  g.append(across("base", h), svg("text", { class: "unit", x: right, y: h + 36, "text-anchor": "end" }, UNITS[axis] ?? chart.axes[axis]));
  if (chart.y) g.append(svg("text", { class: "unit", x: 0, y: -10 }, chart.y));
  for (const v of ticks(x0, x1, step)) {
    const px = x(v), edge = px > right - 20 ? "end" : px < left + 10 ? "start" : "middle";
    g.append(svg("text", { class: "x-tick", x: edge === "end" ? right : px, y: h + 19, "text-anchor": edge }, axisOf(axis).tick(v, step)));
  }
  for (const s of chart.series) if (on(s, axis).low) g.append(svg("path", { class: `band ${s.color}`, d: bandPath(on(s, axis), x, y.to) }));
  for (const s of chart.series) g.append(svg("path", { class: `${s.style} ${s.color}${pointsOf(s) < 80 ? " few" : ""}`, d: path(s.style, on(s, axis), x, y.to) }));
  for (const m of chart.marks ?? []) {
    const py = y.to(m.y), close = chart.marks.some((o) => o.y > m.y && py - y.to(o.y) < 34); // its label goes below
    g.append(across("mark", py), svg("text", { class: "mark-label", x: left + 6, y: py + (close || py < 18 ? 16 : -6) }, m.label));
  }
  g.append(cross);
  image.append(g);
  return { image, cross, h, x, y: y.to, xAt: linear([left, right], [x0, x1]) };
}

function drawXY(figure, chart) {
  const series = chart.series;
  const keys = series.map((s) => el("span", { class: `key ${s.style} ${s.color}` }, s.name + thinned(s)));
  figure.append(el("div", { class: "legend" }, ...keys));
  const plot = makePlot(figure, `${chart.title}: ${series.map((s) => s.name).join(", ")}`);
  const tip = new Tip(plot), height = figure.classList.contains("large") ? HEIGHT.large : HEIGHT.small;
  // The pointer follows the series with the most points: the others have their nearest ones close by.
  const lead = series.reduce((a, b) => (pointsOf(b) > pointsOf(a) ? b : a));
  let axis = Object.keys(chart.axes)[0], view = null;

  function draw() {
    const next = pictureXY(chart, axis, Math.max(240, plot.clientWidth), height);
    if (view) view.image.replaceWith(next.image); else plot.prepend(next.image);
    view = next;
    tip.hide();
    figure.dataset.axis = axis;
  }

  function show(i, speak) {
    const { x } = on(lead, axis), value = x[i], px = view.x(value), rows = [];
    view.cross.replaceChildren(svg("line", { class: "cross", x1: px, x2: px, y1: 0, y2: view.h }));
    for (const s of series) {
      const c = on(s, axis), j = s === lead ? i : nearest(c.x, value), at = view.x(c.x[j]);
      if (Math.abs(at - px) > 40) continue; // a run that ended long ago has no value here
      view.cross.append(svg("circle", { class: `here ${s.color}`, cx: at, cy: view.y(c.y[j]), r: 4.5 }));
      rows.push([s.name, number(c.y[j]) + (c.low ? ` [${number(c.low[j])}, ${number(c.high[j])}]` : ""), s.color]);
    }
    const axes = lead.curves ? [axis] : Object.keys(chart.axes);
    tip.show(px, 4, axes.map((a) => axisOf(a).value(on(lead, a).x[i])).join(" · "), rows, speak);
  }

  explore(plot, () => on(lead, axis).x.length, (px) => nearest(on(lead, axis).x, view.xAt(px)), show, () => { view.cross.replaceChildren(); tip.hide(); });
  draw();
  onResize(plot, draw);
  const onAxis = (e) => {
    if (!figure.isConnected) document.removeEventListener("x-axis", onAxis); // a live page replaced it
    else if (e.detail in chart.axes) { axis = e.detail; draw(); }
  };
  document.addEventListener("x-axis", onAxis);
  figure.dataset.points = series.reduce((n, s) => n + pointsOf(s), 0);
}

// One path per series, dots too (lines of no length with round ends): thousands of elements would make a phone crawl.
function path(style, { x: xs, y: ys }, x, y) {
  const out = [];
  for (let i = 0; i < xs.length; i++) {
    const p = `${x(xs[i]).toFixed(1)} ${y(ys[i]).toFixed(1)}`;
    out.push(style === "dots" ? `M${p}h0` : `${i ? "L" : "M"}${p}`);
  }
  if (style !== "dots" && xs.length === 1) out.push("h.1");
  return out.join("");
}

function bandPath({ x: xs, low, high }, x, y) {
  const point = (v, i) => `${x(xs[i]).toFixed(1)} ${y(v).toFixed(1)}`;
  return `M${[...high.map(point), ...low.map(point).reverse()].join("L")}Z`;
}
