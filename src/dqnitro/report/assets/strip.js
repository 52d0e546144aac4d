// Single values with mean and interval.

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
