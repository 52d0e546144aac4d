// Elements and numbers: what every other file of the script uses. The files are joined in the order of html.py; no library, no network.

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
const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
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
  updates: { tick: tickText, value: (v) => `${plain.format(v)} updates` },
};
const axisOf = (name) => AXES[name] ?? { tick: tickText, value: number };
