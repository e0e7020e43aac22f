// One draw of the root in a column, a leaf in a row: what every leaf would make of the same draw.

import { element, percent } from "./dom.js";
import { ink } from "./colours.js";
import { picture } from "./pictures.js";

export function leavesTable(bundle, state, colours) {
  const rows = bundle.all_leaves;
  const head = element("tr", {}, element("td", {}), rows.map((_, i) => element("th", { scope: "col" }, String(i + 1))));
  const best = rows.map((row) => d3.greatest(bundle.leaves, ({ id }) => row.probabilities[id])?.id);
  const body = bundle.leaves.map((leaf) => {
    const colour = colours.get(leaf.id);
    const name = element("th", { scope: "row" }, element("button", {
      type: "button", class: "quiet leafname", title: leaf.name, onclick: () => state.select(leaf.id),
      onpointerenter: () => state.hover(leaf.id), onpointerleave: () => state.hover(null),
    }, element("span", { class: "badge", style: { "--colour": colour, "--ink": ink(colour) } }, String(leaf.leaf)),
      element("span", {}, leaf.name)));
    return element("tr", {}, name, rows.map((row, i) => {
      const p = row.probabilities[leaf.id];
      const said = `draw ${i + 1} in cluster ${leaf.leaf}, probability ${percent(p)}`;
      const style = { "--p": Math.max(0.28, Math.sqrt(p)), "--colour": colour };
      const shown = picture(bundle, row.images[leaf.id], said);
      return element("td", { class: leaf.id === best[i] ? "best" : "", title: said, style }, shown);
    }));
  });
  return [
    element("p", { class: "note" },
      "Each column is one draw of the root, sent into every leaf. Pale: the routers would rarely send it there. "
      + "Framed: where it would most likely go."),
    element("div", { class: "scroll" },
      element("table", { class: `every-leaf ${bundle.kind}` }, element("thead", {}, head), element("tbody", {}, body))),
  ];
}
