// The line above the page: what is shown, into how many groups the tree is cut, light and dark, help.

import { button, counted, element, percent } from "./dom.js";
import { isDark } from "./colours.js";

export class HeaderView {
  constructor(bundle, state) {
    this.bundle = bundle;
    this.state = state;
    const most = bundle.leaves.length;
    this.slider = element("input", {
      type: "range", id: "cut", min: 1, max: most, step: 1, "aria-label": "How many groups to show",
      oninput: () => state.cut(Number(this.slider.value)),
    });
    this.count = element("output", { for: "cut" });
    document.getElementById("top").replaceChildren(
      element("div", { class: "title" }, element("h1", {}, bundle.title), element("p", { id: "about" }, this.about())),
      element("label", { class: "cut" }, element("span", {}, "Show me"), this.slider, this.count),
      element("div", { class: "corner" }, button("Light or dark", "theme", () => this.turnTheme(), { id: "theme" }),
        button("Help and keys", "help", () => help.showModal(), { id: "ask" })));
    const help = document.getElementById("help");
    help.replaceChildren(...this.help(help));
    help.addEventListener("click", (event) => event.target === help && help.close());
    state.listen(["tree"], () => this.draw());
    this.draw();
  }

  about() {
    const { n_samples, what, leaves, scores } = this.bundle;
    const found = scores ? ` · ${percent(scores.ACC)} accuracy, ${percent(scores.NMI)} NMI` : "";
    return `${counted(n_samples, what)} in ${counted(leaves.length, "cluster")}${found}`;
  }

  draw() {
    const n = this.state.groups.length;
    this.slider.value = n;
    this.count.textContent = counted(n, "group");
    this.slider.setAttribute("aria-valuetext", this.count.textContent);
  }

  turnTheme() {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    this.state.tell("tree");
  }

  help(dialog) {
    const keys = [["← ↑ → ↓", "move between nodes"], ["Enter", "fold or unfold the node"], ["+ −", "zoom"],
      ["0", "show the whole tree"], ["[ ]", "fewer or more groups"], ["Esc", "close the panel"], ["?", "this help"]];
    return [
      element("div", { class: "headline" }, element("h2", {}, "How to read this page"),
        button("Close", "close", () => dialog.close())),
      element("p", {},
        "A tree variational autoencoder was fitted without labels. Every sample travels from the root to a "
        + "leaf; a branch is as wide as the share of the samples that takes it. A leaf is a cluster; its "
        + "pictures, words or features are those of its surest samples."),
      element("p", {},
        "Click a node to see what it holds, what split it and what it generates; click it again to fold it. "
        + "Point at the tree to see its samples on the map, and at the map to see where they are in the tree. "
        + "Drag to move, turn the wheel to zoom."),
      element("p", {},
        "Mass is the mean probability of reaching a node; confidence is the mean probability of the branch that "
        + "a sample takes there. Scores compare clusters with the given classes, which the model has never seen."),
      element("table", { class: "terms" }, element("tbody", {}, keys.map(([key, what]) =>
        element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, key)), element("td", {}, what))))),
      element("p", { class: "note" }, `Made with treevae ${this.bundle.treevae}, ${this.bundle.created.slice(0, 10)}.`),
    ];
  }
}
