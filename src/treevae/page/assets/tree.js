// The tree: branches as ribbons, a button at every node, a card with pictures at every group. Zooms, pans, folds.

import { button, counted, drawing, element, icon, percent } from "./dom.js";
import { ink, nodeColours } from "./colours.js";
import { isFirst, layoutTree, leafHeight, ribbons, roomBeside } from "./layout.js";
import { cardOf, samplePicture } from "./pictures.js";
import { labelBar } from "./labels.js";

const SMALL_SCREEN = "(max-width: 800px)"; // as in the style sheet
const NARROWEST_COLUMN = { images: 6.2, words: 8, table: 9.5 }; // rem of a leaf; with less room the tree lies down

export class TreeView {
  constructor(bundle, state) {
    this.bundle = bundle;
    this.state = state;
    this.viewport = document.getElementById("viewport");
    this.branches = drawing("g");
    this.svg = drawing("svg", { class: "branches", "aria-hidden": "true" }, this.branches);
    this.nodes = element("div", { class: "nodes", role: "tree", "aria-label": "Nodes of the tree" });
    this.world = element("div", { class: "world" }, this.svg, this.nodes);
    this.viewport.replaceChildren(this.world);
    this.zoom = d3.zoom().scaleExtent([0.1, 8]).filter((event) => this.meant(event)).on("zoom", ({ transform }) => {
      this.world.style.transform = `translate(${transform.x}px,${transform.y}px) scale(${transform.k})`;
    });
    d3.select(this.viewport).call(this.zoom).on("dblclick.zoom", null);
    this.upright = null;
    this.buttons = new Map();
    this.tools();
    state.listen(["tree"], () => this.draw());
    state.listen(["selected"], () => this.mark());
    state.listen(["hover"], () => this.highlight());
    new ResizeObserver(() => this.resized()).observe(this.viewport);
  }

  get small() {
    return matchMedia(SMALL_SCREEN).matches;
  }

  // On a small screen one finger scrolls the page; two zoom and move the tree.
  meant(event) {
    if (event.type.startsWith("touch")) return !this.small || event.touches.length > 1;
    return event.type === "wheel" ? !this.small || event.ctrlKey : !event.ctrlKey && !event.button;
  }

  get rem() {
    return parseFloat(getComputedStyle(document.documentElement).fontSize);
  }

  resized() {
    const { clientWidth: width, clientHeight: height } = this.viewport;
    if (!width || (width === this.lastWidth && height === this.lastHeight)) return;
    [this.lastWidth, this.lastHeight] = [width, height];
    const column = width / this.state.groups.length;
    if (!this.turned) this.upright = column >= NARROWEST_COLUMN[this.bundle.kind] * this.rem;
    this.draw();
    this.fit(false);
  }

  turn() {
    this.upright = !this.upright;
    this.turned = true;
    this.draw();
    this.fit(true);
  }

  tools() {
    const by = (factor) => () =>
      d3.select(this.viewport).transition().duration(this.pace).call(this.zoom.scaleBy, factor);
    document.getElementById("tools").replaceChildren(
      button("Zoom in", "plus", by(1.5)),
      button("Zoom out", "minus", by(1 / 1.5)),
      button("Show the whole tree", "fit", () => this.fit(true), { id: "fit" }),
      button("Turn the tree", "turn", () => this.turn()));
  }

  get pace() {
    return matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 300;
  }

  fit(slowly) {
    const { clientWidth, clientHeight } = this.viewport;
    const k = Math.min(1, clientWidth / this.layout.width, clientHeight / this.layout.height);
    const x = (clientWidth - this.layout.width * k) / 2;
    const y = Math.max(0, (clientHeight - this.layout.height * k) / 2);
    const transform = d3.zoomIdentity.translate(x, y).scale(k);
    const view = d3.select(this.viewport);
    (slowly && this.pace ? view.transition().duration(this.pace) : view).call(this.zoom.transform, transform);
  }

  draw() {
    // the page scrolls there, so that the tree can be as high as its leaves need
    const needed = ((leafHeight(this.bundle, this.small) + 0.25) * this.state.groups.length + 6) * this.rem;
    this.viewport.parentElement.style.height = this.small ? `${Math.max(0.7 * innerHeight, needed)}px` : "";
    const { clientWidth, clientHeight } = this.viewport;
    const first = !this.layout;
    const grown = this.layout && this.state.groups.length !== this.layout.groups.length;
    this.layout = layoutTree(this.bundle, this.state, clientWidth, clientHeight, this.rem, this.upright);
    this.colours = nodeColours(this.bundle, this.layout.groups);
    this.svg.setAttribute("width", this.layout.width);
    this.svg.setAttribute("height", this.layout.height);
    this.world.style.width = `${this.layout.width}px`;
    this.world.style.height = `${this.layout.height}px`;
    this.drawBranches(first);
    this.drawNodes();
    this.mark();
    this.highlight();
    if (grown) this.fit(true);
  }

  drawBranches(first) {
    const drawn = d3.select(this.branches).selectAll("path");
    const joined = drawn.data(ribbons(this.bundle, this.layout), (branch) => branch.id);
    joined.exit().remove();
    const entered = joined.enter().append("path").attr("d", (branch) => branch.d);
    entered.on("pointerenter", (_, branch) => this.state.hover(branch.id));
    entered.on("pointerleave", () => this.state.hover(null));
    entered.on("click", (_, branch) => this.state.select(branch.id));
    const all = entered.merge(joined);
    all.attr("stroke", (branch) => this.colours.get(branch.id)).attr("stroke-width", (branch) => branch.width);
    if (first || !this.pace) all.attr("d", (branch) => branch.d);
    else {
      joined.transition().duration(this.pace).attr("d", (branch) => branch.d);
      entered.attr("opacity", 0).transition().duration(this.pace).attr("opacity", 1);
    }
  }

  drawNodes() {
    const made = [];
    this.buttons.clear();
    const focused = document.activeElement?.dataset?.node;
    const walk = (id, level) => {
      const node = this.layout.nodes.get(id);
      made.push(this.nodeButton(node, level));
      if (!node.group) for (const child of this.bundle.children(id)) walk(child, level + 1);
    };
    walk(this.bundle.root, 1);
    this.nodes.replaceChildren(...made);
    if (focused !== undefined) this.buttons.get(Number(focused))?.focus({ preventScroll: true });
  }

  nodeButton(place, level) {
    const node = this.bundle.node.get(place.id);
    const share = this.bundle.share(node.id);
    const said = `${node.name}, ${counted(node.size, this.bundle.what)}, ${percent(share)}`;
    const { upright, card } = this.layout;
    const colour = this.colours.get(node.id);
    const style = { transform: `translate(${place.x}px,${place.y}px)`, "--colour": colour, "--ink": ink(colour) };
    if (place.group) {
      const [side, half] = upright ? ["margin-left", card[0] / 2] : ["margin-top", card[1] / 2];
      Object.assign(style, { width: `${card[0]}px`, height: `${card[1]}px`, [side]: `${-half}px` });
    }
    const made = element("div", {
      class: place.group ? `node group ${upright ? "upright" : "lying"}` : "node fork", style,
      role: "treeitem", tabindex: "-1", "data-node": node.id, "aria-level": level, "aria-label": said,
      "aria-expanded": node.leaf === null ? String(!this.state.folded.has(node.id)) : null,
      onclick: (event) => this.clicked(event, node, place),
      ondblclick: () => place.group && this.state.fold(node.id),
      onpointerenter: () => this.state.hover(node.id),
      onpointerleave: () => this.state.hover(null),
    }, ...(place.group ? [this.groupCard(node, share)] : this.forkParts(node, share)));
    this.buttons.set(node.id, made);
    return made;
  }

  // A click chooses a node; a click on the sign of a folded one unfolds it, a second click on a fork folds it.
  clicked(event, node, place) {
    const again = this.state.opened && this.state.tab === "node" && this.state.selected === node.id;
    if (place.group ? event.target.closest(".knob") : again) this.state.fold(node.id);
    else this.state.select(node.id);
    this.buttons.get(node.id)?.focus({ preventScroll: true });
  }

  forkParts(node, share) {
    const knob = element("span", { class: "knob" }, icon("minus"));
    const { upright, level, most } = this.layout;
    if (node.id === this.bundle.root) {
      const total = element("b", {}, counted(node.size, this.bundle.what));
      return [knob, element("span", { class: `caption root ${upright ? "" : "sideways"}` }, total)];
    }
    const first = isFirst(this.bundle, node.id);
    const where = upright ? (first ? "before" : "after") : first ? "above" : "below";
    const beyond = Math.max(0, (share * most) / 2 - 0.4 * this.rem); // of the knob, that its branches reach
    const width = upright
      ? roomBeside(this.bundle, this.layout, node.id).room - 1.1 * this.rem - beyond : level * 0.95;
    const named = !node.name.startsWith("Clusters") && width > 4 * this.rem;
    const style = { "max-width": `${width}px`, "--beyond": `${beyond}px` };
    return [knob, element("span", { class: `caption ${where}`, style },
      element("b", {}, percent(share)), named ? element("span", {}, node.name) : null)];
  }

  groupCard(node, share) {
    const folded = node.leaf === null;
    const { upright, card, pictures, tile, narrow, stacked, lines } = this.layout;
    const main = this.bundle.mainClass(node.id);
    const badge = folded
      ? element("span", { class: "badge knob", title: "Unfold" }, icon("plus"))
      : element("span", { class: "badge" }, String(node.leaf));
    const wide = (upright ? card[0] : card[0] - 9 * this.rem) > 8.5 * this.rem;
    const more = !wide ? "" : folded ? ` · ${counted(this.bundle.below.get(node.id).length, "cluster")}`
      : main && node.size ? ` · ${percent(main.share)} pure` : "";
    const words = element("span", { class: "about" },
      element("span", { class: "name", title: node.name }, node.name),
      element("span", { class: "share" }, percent(share), more),
      node.labels ? labelBar(this.bundle, node.labels) : null);
    const most = this.bundle.kind === "table" ? lines : stacked ? 3 * lines : 8;
    const shown = !node.size ? element("span", { class: "note" }, "no samples") : this.bundle.kind === "images"
      ? element("span", { class: "pictures" },
        node.typical.slice(0, pictures).map((i) => samplePicture(this.bundle, i)))
      : element("span", { class: "marks" }, cardOf(this.bundle, node.marks, most, 1.5));
    const style = tile ? { "--tile": `${tile}px` } : {};
    const sort = `leafcard ${narrow ? "narrow" : ""} ${stacked ? "stacked" : ""}`;
    return element("span", { class: sort, style }, badge, words, shown);
  }

  mark() {
    for (const [id, made] of this.buttons) {
      const selected = id === this.state.selected;
      made.classList.toggle("selected", selected);
      made.setAttribute("aria-selected", String(selected));
      made.tabIndex = selected ? 0 : -1;
    }
    if (!this.buttons.has(this.state.selected)) this.buttons.get(this.bundle.root).tabIndex = 0;
  }

  highlight() {
    const { hovered } = this.state;
    const path = hovered === null ? null : new Set(this.bundle.path(hovered));
    const lit = (id) => path === null || path.has(id) || this.bundle.path(id).includes(hovered);
    for (const [id, made] of this.buttons) made.classList.toggle("dim", !lit(id));
    d3.select(this.branches).selectAll("path").classed("dim", (branch) => !lit(branch.id));
  }

  // The neighbour of a node in a direction of the screen.
  neighbour(id, key) {
    const turned = this.layout.upright ? key
      : { ArrowLeft: "ArrowUp", ArrowRight: "ArrowDown", ArrowUp: "ArrowLeft", ArrowDown: "ArrowRight" }[key];
    if (turned === "ArrowUp") return this.bundle.parent(id);
    if (turned === "ArrowDown") return this.layout.nodes.get(id).group ? null : this.bundle.children(id)[0];
    const here = this.layout.nodes.get(id);
    const side = turned === "ArrowRight" ? 1 : -1;
    const level = this.bundle.path(id).length;
    const same = [...this.layout.nodes.values()].filter((node) => {
      const path = this.bundle.path(node.id);
      const fits = here.group ? node.group : path.length === level || (node.group && !path.includes(id));
      return fits && side * (node.along - here.along) > 0;
    });
    return d3.least(same, (node) => side * (node.along - here.along))?.id ?? null;
  }

  focus(id) {
    this.buttons.get(id)?.focus({ preventScroll: true });
  }
}
