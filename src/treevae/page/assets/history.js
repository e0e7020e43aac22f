// The course of training as a small chart: reconstruction loss and KL of every epoch, a stripe for every stage.

import { drawing, element, figure } from "./dom.js";

const WIDE = 360;
const HIGH = 150;
const MARGIN = { left: 42, right: 36, top: 8, bottom: 22 };

export function historyChart(bundle) {
  const rows = bundle.history;
  if (rows.length < 2) return element("p", { class: "note" }, "There is no history of training.");
  const x = d3.scaleLinear([0, rows.length - 1], [MARGIN.left, WIDE - MARGIN.right]);
  const loss = d3.scaleLinear(padded(rows.map((row) => -row.reconstruction)),
    [HIGH - MARGIN.bottom, MARGIN.top]).nice(4);
  const kl = d3.scaleLinear(padded(rows.map((row) => row.kl)), [HIGH - MARGIN.bottom, MARGIN.top]).nice(4);
  const stages = stagesOf(rows);
  const [before, after] = [rows[0], rows.at(-1)].map((row) => figure(-row.reconstruction));
  const said = `Reconstruction loss from ${before} to ${after} nats`;
  const chart = drawing("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "chart", role: "img", "aria-label": said });
  stages.forEach((stage, i) => {
    const [from, to] = [x(stage.from - 0.5), x(stage.to)];
    const height = HIGH - MARGIN.top - MARGIN.bottom;
    if (i % 2) chart.append(drawing("rect", { class: "stripe", x: from, width: to - from, y: MARGIN.top, height }));
  });
  for (const [scale, at, anchor, name] of [[loss, MARGIN.left - 5, "end", "loss"],
    [kl, WIDE - MARGIN.right + 5, "start", "kl"]]) {
    for (const tick of scale.ticks(4)) {
      const text = drawing("text", { x: at, y: scale(tick) + 3, "text-anchor": anchor, class: name });
      text.textContent = scale.tickFormat(4)(tick);
      chart.append(text);
    }
  }
  for (const tick of loss.ticks(4)) chart.append(drawing("line",
    { class: "grid", x1: MARGIN.left, x2: WIDE - MARGIN.right, y1: loss(tick), y2: loss(tick) }));
  const line = (scale, value) => d3.line((_, i) => x(i), (row) => scale(value(row)))(rows);
  chart.append(drawing("path", { class: "loss", d: line(loss, (row) => -row.reconstruction) }),
    drawing("path", { class: "kl", d: line(kl, (row) => row.kl) }));
  const foot = drawing("text", { x: (MARGIN.left + WIDE - MARGIN.right) / 2, y: HIGH - 6, "text-anchor": "middle" });
  foot.textContent = "epochs, over all stages";
  chart.append(foot);
  const settings = Object.entries(bundle.parameters ?? {});
  return [
    element("p", { class: "note" }, element("b", { class: "loss" }, "reconstruction loss"), " and ",
      element("b", { class: "kl" }, "KL"),
      ", nats a sample; a stripe for every stage. In a subtree's stage they are those of the samples that "
      + "reach it."),
    chart,
    element("table", { class: "terms" },
      element("thead", {}, element("tr", {},
        ["stage", "leaves", "epochs", "loss"].map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, stages.map((stage) => element("tr", {}, element("th", { scope: "row" }, stage.name),
        [String(stage.leaves), String(stage.epochs), figure(stage.loss)].map((cell) => element("td", {}, cell)))))),
    settings.length ? element("table", { class: "terms" },
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "settings"), element("td", {}))),
      element("tbody", {}, settings.map(([name, value]) =>
        element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value))))) : null,
  ];
}

// The middle 98 per cent of the values, so that the first epochs do not flatten the rest.
function padded(values) {
  const sorted = [...values].sort(d3.ascending);
  return [d3.quantileSorted(sorted, 0.01), d3.quantileSorted(sorted, 0.98)];
}

function stagesOf(rows) {
  const stages = [];
  rows.forEach((row, i) => {
    const last = stages.at(-1);
    const same = last && last.stage === row.stage && last.leaf === row.leaf && row.epoch > last.epochs;
    const name = row.leaf === null ? row.stage : `${row.stage} of node ${row.leaf}`;
    if (!same) stages.push({ stage: row.stage, leaf: row.leaf, name, from: i });
    Object.assign(stages.at(-1), { to: i, epochs: row.epoch, leaves: row.n_leaves, loss: row.loss });
  });
  return stages;
}
