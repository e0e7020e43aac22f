// The map: a point for every shown sample where the root's embedding puts it. Hovering links it with the tree.

import { counted, element, percent, wholeNumber } from "./dom.js";
import { classColour, nodeColours } from "./colours.js";
import { samplePicture } from "./pictures.js";

const NEAR = 14; // pixels from a point within which it is meant

export class MapView {
  constructor(bundle, state) {
    this.bundle = bundle;
    this.state = state;
    this.host = document.getElementById("map");
    this.canvas = element("canvas", { tabindex: "-1", role: "img", "aria-label": this.caption() });
    this.choice = element("select", {
      id: "colour", "aria-label": "Colour of the points", onchange: () => state.set("colour", this.choice.value),
    }, this.options());
    this.host.replaceChildren(
      element("div", { class: "bar-of-map" }, element("h2", {}, "Map"), element("label", {}, "colour ", this.choice)),
      element("div", { class: "plot" }, this.canvas),
      this.legend = element("ul", { class: "legend", "aria-label": "Colours of the map" }),
      element("p", { class: "note" }, this.caption()));
    this.tip = document.getElementById("tip");
    this.canvas.addEventListener("pointermove", (event) => this.pointed(event));
    this.canvas.addEventListener("pointerleave", () => this.left());
    this.canvas.addEventListener("click", (event) => this.clicked(event));
    state.listen(["tree", "hover", "selected", "colour"], () => this.later());
    new ResizeObserver(() => this.later()).observe(this.canvas.parentElement);
  }

  options() {
    const found = [["groups", "groups shown"], ["leaves", "all clusters"]];
    for (let depth = 1; depth < this.bundle.depth; depth++) found.push([`level ${depth}`, `level ${depth}`]);
    if (this.bundle.classes) found.push(["class", "class"]);
    return found.map(([value, name]) => element("option", { value }, name));
  }

  caption() {
    const { n_shown, n_samples, map, what } = this.bundle;
    const some = `${n_shown < n_samples ? `${wholeNumber(n_shown)} of ` : "all "}${counted(n_samples, what)}`;
    return `${map.method} of the ${map.of}, ${some}`;
  }

  // However often it is asked for, it is drawn once a frame.
  later() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.draw();
    });
  }

  // The nodes whose samples have a colour each.
  groups() {
    const { colour } = this.state;
    if (colour === "groups") return this.state.groups;
    return colour === "leaves" ? this.bundle.leaves.map(({ id }) => id)
      : this.bundle.level(Number(colour.split(" ")[1]));
  }

  // The colour of a sample; the legend says what it means.
  colourOf() {
    const { leaf, label } = this.bundle.samples;
    if (this.state.colour === "class") {
      this.explain(this.bundle.classes.map((name, i) => ({ name, colour: classColour(i) })));
      return (i) => classColour(label[i]);
    }
    const groups = this.groups();
    const colours = nodeColours(this.bundle, groups);
    this.explain(groups.map((id) => {
      const { leaf: number, name } = this.bundle.node.get(id);
      return { id, name: number === null ? name : `${number} ${name}`, colour: colours.get(id) };
    }));
    return (i) => colours.get(leaf[i]);
  }

  explain(entries) {
    const said = JSON.stringify(entries);
    if (said === this.explained) return; // under a pointer it stays as it is
    this.explained = said;
    this.legend.replaceChildren(...entries.map(({ id, name, colour }) => {
      const hover = id === undefined ? {} : {
        onpointerenter: () => this.state.hover(id), onpointerleave: () => this.state.hover(null),
      };
      return element("li", hover, element("i", { style: { background: colour } }),
        element("span", { title: name }, name));
    }));
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    const dense = devicePixelRatio || 1;
    this.canvas.width = width * dense;
    this.canvas.height = height * dense;
    const { x, y, leaf } = this.bundle.samples;
    const margin = 10;
    const [wide, high] = [d3.extent(x), d3.extent(y)];
    const side = Math.min((width - 2 * margin) / (wide[1] - wide[0] || 1),
      (height - 2 * margin) / (high[1] - high[0] || 1));
    const middle = [(wide[0] + wide[1]) / 2, (high[0] + high[1]) / 2];
    this.points = x.map((at, i) => [width / 2 + (at - middle[0]) * side, height / 2 - (y[i] - middle[1]) * side]);
    this.near = d3.quadtree(d3.range(x.length), (i) => this.points[i][0], (i) => this.points[i][1]);
    const brush = this.canvas.getContext("2d");
    brush.scale(dense, dense);
    const colour = this.colourOf();
    const focus = this.state.hovered ?? (this.state.selected === this.bundle.root ? null : this.state.selected);
    const lit = (i) => focus === null || this.bundle.contains(focus, leaf[i]);
    const radius = Math.max(1.6, Math.min(4.5, Math.sqrt((width * height) / x.length) / 4));
    for (const bright of [false, true]) {
      for (let i = 0; i < x.length; i++) {
        if (lit(i) !== bright) continue;
        brush.globalAlpha = bright ? 0.85 : 0.13;
        brush.fillStyle = colour(i);
        brush.beginPath();
        brush.arc(...this.points[i], radius, 0, 2 * Math.PI);
        brush.fill();
      }
    }
    if (this.state.sample !== null) this.ring(brush, this.points[this.state.sample], radius);
  }

  ring(brush, [x, y], radius) {
    brush.globalAlpha = 1;
    brush.lineWidth = 2;
    brush.strokeStyle = getComputedStyle(this.canvas).color;
    brush.beginPath();
    brush.arc(x, y, radius + 3, 0, 2 * Math.PI);
    brush.stroke();
  }

  at(event) {
    return this.near?.find(event.offsetX, event.offsetY, NEAR);
  }

  // A finger clicks without ever having moved.
  clicked(event) {
    const found = this.at(event);
    if (found !== undefined) this.state.choose(found);
  }

  pointed(event) {
    const found = this.at(event);
    if (found === undefined) return this.left();
    this.state.hover(this.bundle.samples.leaf[found], found);
    this.showTip(found, event);
  }

  left() {
    this.tip.hidden = true;
    this.state.hover(null);
  }

  showTip(i, event) {
    const { samples, classes } = this.bundle;
    const leaf = this.bundle.node.get(samples.leaf[i]);
    this.tip.replaceChildren(samplePicture(this.bundle, i), element("span", {},
      element("b", {}, classes ? classes[samples.label[i]] : `sample ${samples.row[i]}`),
      element("small", {}, `cluster ${leaf.leaf}: ${leaf.name}`),
      element("small", {}, `${percent(samples.probability[i])} sure`)));
    this.tip.hidden = false;
    const { width, height } = this.tip.getBoundingClientRect();
    const x = event.clientX + 16 + width > innerWidth ? event.clientX - 16 - width : event.clientX + 16;
    const y = Math.min(innerHeight - height - 8, event.clientY + 12);
    this.tip.style.transform = `translate(${Math.max(4, x)}px,${y}px)`;
  }
}
