// Bars of parts that make a whole.

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
