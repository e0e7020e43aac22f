// What the reader has chosen. Whoever shows it listens.

export class State {
  constructor(bundle) {
    this.bundle = bundle;
    this.listeners = [];
    this.folded = new Set();
    this.remembered = new Set(); // nodes folded by hand: unfolding them shows again what was open below
    this.selected = bundle.root;
    this.opened = false; // whether the reader has asked for the panel: before, small screens show only its tabs
    this.hovered = null; // a node
    this.sample = null; // a sample that is pointed at
    this.chosen = null; // a sample that was clicked while the live tab was open
    this.colour = "groups";
    this.tab = "node";
    this.cut(Math.min(bundle.leaves.length, MOST_AT_FIRST), false);
  }

  // Calls `then` whenever one of the words in `wanted` is told; once, however many of them are told together.
  listen(wanted, then) {
    this.listeners.push([wanted, then]);
  }

  tell(...what) {
    for (const [wanted, then] of this.listeners) if (wanted.some((word) => what.includes(word))) then();
  }

  // The groups that are shown, from left to right: leaves, and folded nodes.
  get groups() {
    const at = (id) => (this.bundle.isLeaf(id) || this.folded.has(id) ? [id] : this.bundle.children(id).flatMap(at));
    return at(this.bundle.root);
  }

  get visible() {
    const at = (id) => [id, ...(this.folded.has(id) ? [] : this.bundle.children(id).flatMap(at))];
    return at(this.bundle.root);
  }

  cut(k, tell = true) {
    this.folded = new Set(this.bundle.groups[k - 1].filter((id) => !this.bundle.isLeaf(id)));
    this.remembered.clear();
    this.keepSelectionInSight();
    if (tell) this.tell("tree");
  }

  fold(id) {
    if (this.bundle.isLeaf(id)) return;
    if (!this.unfold(id)) {
      this.folded.add(id);
      this.remembered.add(id);
    }
    this.keepSelectionInSight();
    this.tell("tree");
  }

  keepSelectionInSight() {
    const hidden = this.bundle.path(this.selected).find((id) => this.folded.has(id));
    if (hidden !== undefined && hidden !== this.selected) this.selected = hidden;
  }

  select(id, open = true, tab = "node") {
    this.selected = this.bundle.fork(id);
    const unfolded = this.bundle.path(this.selected).slice(0, -1).filter((above) => this.unfold(above));
    this.opened = open;
    this.tab = tab;
    this.tell("selected", ...(unfolded.length ? ["tree"] : []));
  }

  // A sample on the map: it leads to its leaf or, where samples are wanted, is taken by whoever listens.
  choose(sample) {
    if (this.tab !== "live") return this.select(this.bundle.samples.leaf[sample]);
    this.chosen = sample;
    this.tell("chosen");
  }

  // Whether the node was folded. What the slider has folded opens by one level.
  unfold(id) {
    if (!this.folded.delete(id)) return false;
    if (this.remembered.delete(id)) return true;
    for (const child of this.bundle.children(id)) if (!this.bundle.isLeaf(child)) this.folded.add(child);
    return true;
  }

  hover(id, sample = null) {
    if (id === this.hovered && sample === this.sample) return;
    this.hovered = id;
    this.sample = sample;
    this.tell("hover");
  }

  open(tab) {
    this.opened = true;
    this.set("tab", tab);
  }

  set(name, value) {
    this[name] = value;
    this.tell(name);
  }
}

const MOST_AT_FIRST = 24; // groups; more would be too small to read before one zooms in
