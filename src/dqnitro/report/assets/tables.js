// Tables that sort and filter.

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
