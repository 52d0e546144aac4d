// From values to pixels, and where the ticks go.

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

// Between two powers of ten. Few decades: 1, 2 and 5 of each; many: every so manieth power.
function logTicks(a, b) {
  const powers = ticks(Math.floor(a), Math.ceil(b), Math.max(1, Math.ceil((b - a) / 6)));
  const at = powers.flatMap((e) => (b - a < 2 ? [1, 2, 5] : [1]).map((m) => +`${m}e${e}`));
  return at.filter((v) => v >= 10 ** a && v <= 10 ** b);
}

function yScale(chart, axis, height) {
  const shown = chart.series.map((s) => on(s, axis));
  let [low, high] = extent([...shown.flatMap((s) => [s.y, s.low ?? [], s.high ?? []]), (chart.marks ?? []).map((m) => m.y)]);
  if (chart.scale === "log") {
    const a = Math.log10(low), b = Math.log10(high), pad = (b - a) * 0.04;
    const to = linear([a - pad, b + pad], [height, 0]);
    return { to: (v) => to(Math.log10(v)), ticks: logTicks(a - pad, b + pad) };
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
