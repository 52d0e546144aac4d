// Starts everything: theme, charts, tables, copy buttons, the switch of the x axis.

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
const KINDS = { xy: drawXY, stack: drawStack, strip: drawStrip, bars: drawBars, stacks: drawStacks };
// Draws and wires everything below an element.
function start(root) {
  for (const figure of $$("figure.chart", root)) {
    const chart = JSON.parse(figure.querySelector("script").textContent);
    KINDS[chart.kind](figure, chart);
  }
  $$("table.sortable", root).forEach(makeSortable);
  $$(".table", root).forEach(makeFilter);
  $$("button.more", root).forEach(makeOpening);
  $$("button.copy", root).forEach(makeCopy);
  for (const input of $$("input.x-axis", root)) {
    input.addEventListener("change", () => chooseAxis(input.value));
    if (input.checked && !input.defaultChecked) chooseAxis(input.value); // a browser that reloads keeps what was chosen
  }
}

// A page may have several switches of the x axis, one beside each group of curves: they say the same.
function chooseAxis(axis) {
  for (const input of $$("input.x-axis")) if (input.value === axis) input.checked = true;
  document.dispatchEvent(new CustomEvent("x-axis", { detail: axis }));
}

// ---------- a page that its server makes again while the run goes on (`dqnitro watch`)

async function refresh() {
  let text;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.status);
    text = await answer.text();
  } catch {
    document.body.dataset.answer = "none"; // page.css greys the state out
    return true;
  }
  delete document.body.dataset.answer;
  const next = new DOMParser().parseFromString(text, "text/html"), axis = $$("input.x-axis:checked")[0]?.value;
  const film = (d) => d.querySelector(".video video")?.getAttribute("src") ?? d.querySelector(".video")?.textContent;
  if (film(next) === film(document)) document.querySelector(".headline").replaceWith(document.adoptNode(next.querySelector(".headline")));
  else document.querySelector(".hero").replaceWith(document.adoptNode(next.querySelector(".hero")));
  for (const part of $$("main > section", next)) {
    const old = document.getElementById(part.id);
    if (old && ((!part.querySelector("figure.chart") && !old.querySelector("p.empty")) || old.matches(":hover"))) continue; // what somebody reads stays
    const mine = document.adoptNode(part);
    if (old) old.replaceWith(mine); else document.querySelector("main").append(mine);
    start(mine);
  }
  if (axis) chooseAxis(axis);
  document.title = next.title;
  document.body.dataset.refreshed = 1 + Number(document.body.dataset.refreshed ?? 0);
  return next.body.dataset.refresh !== undefined;
}

start(document);
const every = Number(document.body.dataset.refresh);
if (every > 0) {
  const again = () => setTimeout(async () => { if (document.hidden || (await refresh())) again(); }, 1000 * every);
  again();
}
