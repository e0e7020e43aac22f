// The mix of classes in a node as one bar.

import { element, percent } from "./dom.js";
import { classColour } from "./colours.js";

const LEAST = 0.01; // share of a class that is drawn by itself

export function labelBar(bundle, counts) {
  const total = Math.max(1, d3.sum(counts));
  const parts = counts.map((count, i) => ({ i, share: count / total })).filter(({ share }) => share >= LEAST);
  parts.sort((a, b) => b.share - a.share);
  const said = parts.slice(0, 4).map(({ i, share }) => `${bundle.classes[i]} ${percent(share)}`).join(", ");
  return element("span", { class: "mix", role: "img", "aria-label": `Classes: ${said}`, title: said },
    parts.map(({ i, share }) => element("span", { style: { "flex-grow": share, background: classColour(i) } })));
}

export function labelLegend(bundle, counts, most) {
  const total = Math.max(1, d3.sum(counts));
  const parts = counts.map((count, i) => ({ i, count })).filter(({ count }) => count).sort((a, b) => b.count - a.count);
  const rest = d3.sum(parts.slice(most), ({ count }) => count);
  return element("ul", { class: "legend" },
    parts.slice(0, most).map(({ i, count }) =>
      element("li", {}, element("i", { style: { background: classColour(i) } }),
      element("span", { title: bundle.classes[i] }, bundle.classes[i]), element("b", {}, percent(count / total)))),
    rest ? element("li", {}, element("i", {}), "others", element("b", {}, percent(rest / total))) : null);
}
