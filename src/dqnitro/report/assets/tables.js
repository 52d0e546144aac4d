// Tables that sort and filter, and rows that open.

// A row and, where it has one, the row of its details below: they move together.
function rowGroups(body) {
  const groups = [];
  for (const row of body.rows) {
    if (row.classList.contains("detail")) groups.at(-1).push(row); else groups.push([row]);
  }
  return groups;
}

function makeSortable(table) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const key = (row, i) => { const c = row.cells[i], raw = c.dataset.sort ?? c.textContent; return [raw.trim() !== "" && Number.isFinite(+raw) ? +raw : NaN, raw]; };
  heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const h of heads) h.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    // Numbers come before words, whichever way; the sort is stable, so sorting twice sorts by both.
    const groups = rowGroups(body).map((group) => [group, key(group[0], i)]);
    groups.sort(([, [a, s]], [, [b, t]]) => {
      const words = Number.isNaN(a) - Number.isNaN(b);
      return words || sign * (Number.isNaN(a) ? s.localeCompare(t, "en", { numeric: true }) : a - b);
    });
    body.append(...groups.flatMap(([group]) => group));
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

// Without this script all details are open.
function makeOpening(button) {
  const row = button.closest("tr"), detail = row.nextElementSibling;
  const set = (open) => { button.setAttribute("aria-expanded", open); detail.classList.toggle("hidden", !open); row.classList.toggle("open", open); };
  button.addEventListener("click", () => set(button.getAttribute("aria-expanded") !== "true"));
  row.addEventListener("click", (e) => { if (!e.target.closest("button, a") && !getSelection().toString()) button.click(); });
  set(false);
}

// Opens the row with this id and goes there.
function reveal(id) {
  const button = document.getElementById(id)?.querySelector("button.more");
  if (!button) return;
  if (button.getAttribute("aria-expanded") !== "true") button.click();
  button.focus({ preventScroll: true });
  button.closest("tr").scrollIntoView({ block: "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth" });
}
