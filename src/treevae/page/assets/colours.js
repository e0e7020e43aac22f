// Colours that all eyes tell apart: blue to teal for one end of the tree, yellow to purple for the other, neighbours in
// the tree being neighbours in colour. Classes have no order and take a scheme of their own.

const RAMPS = {
  light: ["#22387f", "#2f6fc4", "#3aa0c9", "#7cc3b4", "#e3b93c", "#e1823a", "#c8453d", "#8a2b63"],
  dark: ["#5160cf", "#4f93ea", "#56bfe0", "#a5e2cf", "#f4d564", "#ef9a4e", "#e0605a", "#ab5298"],
};
const CLASSES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c1a", "#7a5ca8", "#7f7f7f",
  "#a6532b"];

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// n colours in the order of the tree. Few are the scheme's own; many lie between those of one half of the scheme, never
// between the halves, where all would look grey to some.
export function ramp(n) {
  const stops = RAMPS[isDark() ? "dark" : "light"];
  if (n === 1) return [stops[1]];
  if (n <= stops.length) return d3.range(n).map((i) => stops[Math.round((i * (stops.length - 1)) / (n - 1))]);
  const half = Math.ceil(n / 2);
  const [one, other] = [stops.slice(0, 4), stops.slice(4)].map((part) => d3.piecewise(d3.interpolateLab, part));
  return d3.range(n).map((i) => (i < half ? one(i / (half - 1)) : other((i - half) / (n - half - 1))));
}

export function classColour(i) {
  const base = d3.lab(CLASSES[i % CLASSES.length]);
  const turn = Math.floor(i / CLASSES.length);
  base.l += (isDark() ? 8 : 0) + (turn % 2 ? 16 : -16) * Math.ceil(turn / 2);
  return base.formatHex();
}

// The colour of every node when these groups are shown: nodes below a group have the group's, nodes above a mean.
export function nodeColours(bundle, groups) {
  const colours = new Map();
  const paint = (id, colour) => {
    colours.set(id, colour);
    for (const child of bundle.node.get(id).children) paint(child, colour);
  };
  ramp(groups.length).forEach((colour, i) => paint(groups[i], colour));
  const mix = (id) => {
    if (colours.has(id)) return colours.get(id);
    const below = bundle.node.get(id).children.map((child) => d3.lab(mix(child)));
    const colour = d3.lab(d3.mean(below, (c) => c.l), d3.mean(below, (c) => c.a), d3.mean(below, (c) => c.b));
    colours.set(id, colour.formatRgb());
    return colours.get(id);
  };
  mix(bundle.nodes.find((node) => node.parent === null).id);
  return colours;
}

// Black or white, whichever is easier to read on a colour.
export function ink(colour) {
  return d3.lab(colour).l > 62 ? "#10131a" : "#ffffff";
}
