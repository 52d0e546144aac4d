// Rows of horizontal bars: one value with its interval (`bars`), or the parts of a whole (`stacks`). A chart is one tab stop;
// the arrow keys go from row to row.

const NARROW = 560, BAR = 16;
const pen = document.createElement("canvas").getContext("2d");

function textWidth(text) {
  pen.font = `600 13px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

const widest = (texts) => Math.ceil(Math.max(0, ...texts.map(textWidth)));

// Labels stand beside the bars, above them where long ones would leave no room; the values stand at the ends of the bars.
function rowLayout(width, labels, texts) {
  const words = 14 + widest(labels), narrow = width < NARROW && words > width * 0.32, row = narrow ? 44 : 30;
  const left = narrow ? 1 : Math.min(width * 0.38, words), right = Math.max(left + 60, width - 12 - widest(texts));
  return { narrow, row, left, right, top: 20, bottom: 26, middle: (i) => 20 + i * row + (narrow ? 30 : 15) };
}

// The bars' own scale. In powers of ten a bar begins at the base, so that its length is the ratio to it.
function barScale(chart, scale, layout) {
  const values = chart.rows.flatMap((r) => [r.value, r.low, r.high]), base = chart.base?.value ?? null;
  let [low, high] = extent([values, base === null ? [] : [base]]);
  if (scale === "log") {
    const a = Math.log10(low), b = Math.log10(high), pad = Math.max(0.02, (b - a) * 0.04);
    const to = linear([a - pad, b + pad], [layout.left, layout.right]);
    return { to: (v) => to(Math.log10(v)), ticks: logTicks(a - pad, b + pad), from: base ?? low };
  }
  const from = chart.origin ?? 0;
  [low, high] = [Math.min(low, from), Math.max(high, from)];
  if (low === high) high = low + 1;
  // A difference that is not there must not fill the chart.
  if (from === 1 && high - low < 0.4) [low, high] = [Math.min(low, 0.8), Math.max(high, 1.2)];
  const pad = from === 0 ? 0 : (high - low) * 0.04;
  const to = linear([low - (low < from ? pad : 0), high + pad], [layout.left, layout.right]);
  return { to, ticks: ticks(low - pad, high + pad, niceStep(high - low, (layout.right - layout.left) / 80)), from };
}

function rowPicture(chart, width, layout, scale) {
  const height = layout.top + chart.rows.length * layout.row + layout.bottom, end = height - layout.bottom;
  const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }), here = svg("rect", { class: "row-here", x: 0, y: 0, width, height: layout.row, rx: 4, visibility: "hidden" });
  image.append(here);
  for (const v of scale.ticks) {
    const px = scale.to(v);
    image.append(svg("line", { class: "grid", x1: px, x2: px, y1: layout.top, y2: end }));
    const anchor = px < layout.left + 8 && layout.narrow ? "start" : "middle";
    image.append(svg("text", { class: "x-tick", x: px, y: end + 18, "text-anchor": anchor }, tickText(v) + (chart.tick ?? "")));
  }
  chart.rows.forEach((r, i) => {
    const y = layout.middle(i), name = svg("text", { class: `row-label${r.strong ? " strong" : ""}`, x: layout.narrow ? 0 : layout.left - 12, y: layout.narrow ? y - 14 : y + 4.5, "text-anchor": layout.narrow ? "start" : "end" }, r.label);
    image.append(name);
    while (!layout.narrow && textWidth(name.textContent) > layout.left - 12 && name.textContent.length > 4) name.textContent = `${name.textContent.slice(0, -2)}…`;
  });
  return { image, here };
}

function drawRows(figure, chart, label, texts, scaleOf, drawRow, tipOf) {
  const plot = makePlot(figure, label), tip = new Tip(plot);
  let view = null, layout = null, shown = null;
  function draw() {
    const width = Math.max(240, plot.clientWidth);
    layout = rowLayout(width, chart.rows.map((r) => r.label), texts());
    const scale = scaleOf(layout), next = rowPicture(chart, width, layout, scale);
    if (chart.base) {
      const px = scale.to(chart.base.value), end = layout.top + chart.rows.length * layout.row;
      next.here.after(svg("line", { class: "base-line", x1: px, x2: px, y1: layout.top - 4, y2: end }));
      next.image.append(svg("text", { class: "base-label", x: Math.max(px, layout.left), y: 11, "text-anchor": px > width - 60 ? "end" : px < 40 ? "start" : "middle" }, chart.base.label));
    }
    chart.rows.forEach((r, i) => drawRow(next.image, r, i, layout, scale));
    if (view) view.image.replaceWith(next.image); else plot.prepend(next.image);
    view = next;
    tip.hide();
  }
  const rowAt = (y) => Math.floor((y - layout.top) / layout.row), at = (_, y) => Math.max(0, Math.min(chart.rows.length - 1, rowAt(y)));
  const show = (i, speak) => {
    const y = layout.top + i * layout.row;
    view.here.setAttribute("y", y);
    view.here.setAttribute("visibility", "visible");
    tip.show(layout.narrow ? 20 : layout.left + 40, y + layout.row + 4, chart.rows[i].label, tipOf(chart.rows[i]), speak, chart.rows[i].color);
    shown = i;
  };
  explore(plot, () => chart.rows.length, at, show, () => { view.here.setAttribute("visibility", "hidden"); tip.hide(); shown = null; }, true);
  const follow = () => { if (shown !== null && chart.rows[shown].target) reveal(chart.rows[shown].target); };
  plot.addEventListener("click", follow);
  plot.addEventListener("keydown", (e) => { if (e.key === "Enter") { e.preventDefault(); follow(); } }); // else its keypress would close what it opened
  draw();
  onResize(plot, draw);
  return draw;
}

function drawBars(figure, chart) {
  let scale = chart.scale ?? "linear", draw = null;
  if (chart.scales) figure.append(makeSwitch("scale", { linear: "linear", log: "log" }, scale, (s) => { scale = s; figure.dataset.scale = s; draw(); }));
  if (chart.legend?.length) figure.append(el("div", { class: "legend" }, ...chart.legend.map((l) => el("span", { class: `key block ${l.color}`, title: l.about ?? "" }, l.name))));
  const drawRow = (image, r, i, layout, { to, from }) => {
    const y = layout.middle(i), a = to(from), b = to(r.value), end = Math.max(a, b, to(r.high));
    image.append(svg("rect", { class: `bar-value ${r.color}${r.faint ? " faint" : ""}`, x: Math.min(a, b), y: y - BAR / 2, width: Math.max(1.5, Math.abs(b - a)), height: BAR, rx: 2.5 }));
    if (r.high > r.low) image.append(svg("path", { class: "whisker", d: `M${to(r.low)} ${y}H${to(r.high)}M${to(r.low)} ${y - 4}v8M${to(r.high)} ${y - 4}v8` }));
    image.append(svg("text", { class: `row-value${r.strong ? " strong" : ""}`, x: end + 8, y: y + 4.5 }, r.text));
  };
  const tipOf = (r) => r.more.map(([name, value]) => [name, value, null]);
  draw = drawRows(figure, chart, `${chart.title}, ${chart.rows.length} bars`, () => chart.rows.map((r) => r.text), (layout) => barScale(chart, scale, layout), drawRow, tipOf);
  figure.dataset.scale = scale;
  figure.dataset.points = chart.rows.length;
}

function drawStacks(figure, chart) {
  let as = chart.unit ? "amount" : "share", draw = null;
  const total = (r) => r.parts.reduce((n, p) => n + p.value, 0), unit = chart.unit ? ` ${chart.unit}` : "";
  if (chart.unit) figure.append(makeSwitch("as", { amount: chart.amount, share: "share" }, as, (k) => { as = k; figure.dataset.as = k; draw(); }));
  figure.append(el("div", { class: "legend" }, ...chart.legend.map((l) => el("span", { class: `key block ${l.color}`, title: l.about }, l.about || l.name))));
  const text = (r) => (unit ? `${three.format(total(r))}${unit}` : "");
  const scaleOf = (layout) => {
    const high = as === "share" ? 100 : Math.max(...chart.rows.map(total));
    return { to: linear([0, high], [layout.left, layout.right]), ticks: ticks(0, high, niceStep(high, (layout.right - layout.left) / 80)) };
  };
  const drawRow = (image, r, i, layout, { to }) => {
    const y = layout.middle(i), whole = total(r), k = as === "share" ? 100 / whole : 1;
    let sum = 0;
    r.parts.forEach((p, j) => {
      const a = to(sum * k), b = to((sum += p.value) * k);
      if (b - a > 0.2) image.append(svg("rect", { class: `bar-value ${chart.legend[j].color}`, x: a, y: y - BAR / 2, width: Math.max(0.5, b - a - 0.8), height: BAR }));
    });
    image.append(svg("text", { class: "row-value", x: to(whole * k) + 8, y: y + 4.5 }, text(r)));
  };
  const tipOf = (r) => r.parts.map((p, j) => [chart.legend[j].about || p.name, `${((100 * p.value) / total(r)).toFixed(1)}%${unit ? `, ${three.format(p.value)}${unit}` : ""}`, chart.legend[j].color]);
  draw = drawRows(figure, chart, `${chart.title}, ${chart.rows.length} rows`, () => chart.rows.map(text), scaleOf, drawRow, tipOf);
  figure.dataset.as = as;
  figure.dataset.points = chart.rows.reduce((n, r) => n + r.parts.length, 0);
}
