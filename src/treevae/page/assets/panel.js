// The panel: what is known about the chosen node, and in other tabs about all leaves, the training, and the live model.

import { button, element, figure, percent, plural, wholeNumber } from "./dom.js";
import { ink, nodeColours } from "./colours.js";
import { labelBar, labelLegend } from "./labels.js";
import { picture, samplePicture } from "./pictures.js";
import { leavesTable } from "./leaves.js";
import { historyChart } from "./history.js";
import { liveOfNode, liveTab } from "./live.js";

const TERMS = [["elbo", "ELBO"], ["reconstruction", "reconstruction"], ["kl_root", "KL of the root"],
  ["kl_nodes", "KL of the nodes"], ["kl_decisions", "KL of the decisions"]];

export class PanelView {
  constructor(bundle, state) {
    this.bundle = bundle;
    this.state = state;
    this.host = document.getElementById("panel");
    this.live = bundle.live ? liveTab(bundle, state) : []; // made once: what came back stays there
    state.listen(["selected", "tree", "tab"], () => this.draw());
    this.draw();
  }

  tabs() {
    const found = [["node", "Node"], ["leaves", "All leaves"], ["training", "Training"]];
    return this.bundle.live ? [...found, ["live", "Live"]] : found;
  }

  draw() {
    this.colours = nodeColours(this.bundle, this.state.groups);
    const { tab } = this.state;
    const body = {
      node: () => this.nodeBody(),
      leaves: () => leavesTable(this.bundle, this.state, this.colours),
      training: () => historyChart(this.bundle),
      live: () => this.live,
    }[tab]();
    const tabs = this.tabs().map(([name, text]) => element("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "tabpanel",
      "aria-selected": String(name === tab), tabindex: name === tab ? "0" : "-1",
      onclick: () => this.state.open(name), onkeydown: (event) => this.switchTab(event, name),
    }, text));
    const content = element("div", {
      id: "tabpanel", role: "tabpanel", "aria-labelledby": `tab-${tab}`, tabindex: "0",
      "data-node": this.state.selected,
    }, body);
    const hadFocus = this.host.contains(document.activeElement) && document.activeElement.role === "tab";
    this.host.replaceChildren(
      element("div", { class: "tabs" }, element("div", { role: "tablist", "aria-label": "Details" }, tabs),
        button("Close", "close", () => this.close(), { class: "close" })),
      content);
    this.host.classList.toggle("open", this.state.opened);
    if (hadFocus) document.getElementById(`tab-${tab}`).focus();
  }

  switchTab(event, name) {
    const names = this.tabs().map(([one]) => one);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.stopPropagation();
    event.preventDefault();
    this.state.open(names[(names.indexOf(name) + step + names.length) % names.length]);
  }

  close() {
    this.state.opened = false;
    if (this.state.selected !== this.bundle.root) this.state.select(this.bundle.root, false);
    else this.draw();
  }

  nodeBody() {
    const { bundle, state } = this;
    const node = bundle.node.get(state.selected);
    const root = node.id === bundle.root;
    const tiles = (title, note, made) => (made.length
      ? this.part(title, note, element("div", { class: `gallery ${bundle.kind}` }, made)) : null);
    const fork = node.leaf === null;
    const samples = (numbers) => numbers.map((i) => samplePicture(bundle, i));
    return [
      root ? null : this.crumbs(node),
      element("div", { class: "headline" }, this.badge(node), element("h2", {}, node.name),
        fork ? element("button", { type: "button", class: "quiet", id: "fold", onclick: () => state.fold(node.id) },
          state.folded.has(node.id) ? "Unfold" : "Fold") : null),
      this.numbers(node),
      root && bundle.scores ? this.scores() : null,
      node.labels ? this.part("Classes", null,
        labelBar(bundle, node.labels), labelLegend(bundle, node.labels, root ? Infinity : 6)) : null,
      tiles("Typical", root ? "the surest of every cluster" : "the surest to be here", samples(node.typical)),
      this.split(node),
      this.attributes(node),
      tiles("In doubt", fork ? "hardest to send left or right" : "the least sure to be here", samples(node.ambiguous)),
      tiles("Generated", fork ? "made up by the clusters below" : "made up by this cluster",
        node.generated.map((shown) => picture(bundle, shown, "generated"))),
      bundle.live ? liveOfNode(bundle, node) : null,
      this.elbo(node),
    ];
  }

  part(title, note, ...content) {
    return element("section", { class: "part" }, element("h3", {}, title, note ? element("small", {}, note) : null),
      ...content);
  }

  badge(node) {
    const colour = this.colours.get(node.id);
    const style = { "--colour": colour, "--ink": ink(colour) };
    return element("span", { class: "badge", style }, node.leaf === null ? "" : String(node.leaf));
  }

  crumbs(node) {
    const above = this.bundle.path(node.id).slice(0, -1);
    return element("nav", { class: "crumbs", "aria-label": "Path from the root" }, above.map((id) =>
      element("button", { type: "button", class: "quiet", onclick: () => this.state.select(id) },
        this.bundle.node.get(id).name)));
  }

  numbers(node) {
    const { bundle } = this;
    const sure = node.leaf === null ? "sure of the branch" : "sure to be here";
    const rows = [[wholeNumber(node.size), plural(node.size, bundle.what)]];
    if (node.id !== bundle.root) rows.push([percent(bundle.share(node.id)), "of all"],
      [percent(node.mass), "soft mass"]);
    const clusters = bundle.below.get(node.id).length;
    if (node.leaf === null) rows.push([String(clusters), plural(clusters, "cluster")]);
    if (node.confidence !== null) rows.push([percent(node.confidence), sure]);
    return element("dl", { class: "numbers" },
      rows.map(([value, name]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  }

  scores() {
    const names = { ACC: "accuracy", NMI: "mutual information", DP: "dendrogram purity", LP: "leaf purity" };
    return element("dl", { class: "numbers" }, Object.entries(this.bundle.scores).map(([name, value]) =>
      element("div", { title: names[name] }, element("dt", {}, names[name]), element("dd", {}, percent(value)))));
  }

  split(node) {
    if (!node.split) return null;
    const [left, right] = this.bundle.children(node.id).map((id) => this.bundle.node.get(id));
    const side = (child) => element("button", {
      type: "button", class: "quiet side", style: { "--colour": this.colours.get(child.id) },
      onclick: () => this.state.select(child.id),
    }, child.name);
    if (node.split.kind === "images") {
      const cell = (sprite, name, text) =>
        element("figure", {}, picture(this.bundle, sprite, name), element("figcaption", {}, text));
      const key = ["more", "less"].flatMap((more, i) => [element("i", { class: more }), ["left", "right"][i]]);
      const note = "mean image of each side, and their difference";
      return this.part("What split it", note, element("div", { class: "means" },
        cell(node.split.left, "mean image of the left side", side(left)),
        cell(node.split.difference, "difference of the means", element("span", { class: "key" }, key)),
        cell(node.split.right, "mean image of the right side", side(right))));
    }
    const note = this.bundle.kind === "words" ? "words of each side, by contrast"
      : "standardised difference of the means";
    return this.part("What split it", note, element("div", { class: "sides" }, side(left), side(right)),
      this.contrast(node.split.rows));
  }

  attributes(node) {
    return node.attributes?.length
      ? this.part("Attributes", "share that has them, left and right", this.contrast(node.attributes)) : null;
  }

  // Bars that point to the side where there is more.
  contrast(rows) {
    const most = Math.max(...rows.map((row) => Math.abs(row.difference)), 1e-9);
    return element("table", { class: "contrast" }, element("tbody", {}, rows.map((row) => {
      const length = `${(Math.abs(row.difference) / most) * 50}%`;
      const bar = element("i", { class: row.difference > 0 ? "to-left" : "to-right", style: { width: length } });
      return element("tr", {}, element("td", {}, figure(row.left)),
        element("th", { scope: "row", title: row.name }, row.name, element("span", { class: "gauge" }, bar)),
        element("td", {}, figure(row.right)));
    })));
  }

  elbo(node) {
    if (!node.elbo) return null;
    const all = this.bundle.node.get(this.bundle.root).elbo;
    const compared = node.id !== this.bundle.root;
    return this.part("ELBO", "nats a sample", element("table", { class: "terms" },
      compared ? element("thead", {},
        element("tr", {}, element("td"), ["here", "all"].map((name) => element("th", { scope: "col" }, name)))) : null,
      element("tbody", {}, TERMS.map(([key, name]) => element("tr", {}, element("th", { scope: "row" }, name),
        element("td", {}, figure(node.elbo[key])),
        compared ? element("td", { class: "faint" }, figure(all[key])) : null)))));
  }
}
