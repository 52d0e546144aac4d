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
for (const figure of $$("figure.chart")) {
  const chart = JSON.parse(figure.querySelector("script").textContent);
  KINDS[chart.kind](figure, chart);
}
$$("table.sortable").forEach(makeSortable);
$$(".table").forEach(makeFilter);
$$("button.more").forEach(makeOpening);
$$("button.copy").forEach(makeCopy);
// A page may have several switches of the x axis, one beside each group of curves: they say the same.
const axisInputs = $$("input.x-axis");
for (const input of axisInputs) {
  const choose = () => {
    for (const other of axisInputs) if (other.value === input.value) other.checked = true;
    document.dispatchEvent(new CustomEvent("x-axis", { detail: input.value }));
  };
  input.addEventListener("change", choose);
  if (input.checked && !input.defaultChecked) choose(); // a browser that reloads keeps what was chosen
}
