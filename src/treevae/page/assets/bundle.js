// The bundle with its arrows: who is whose child, which leaves and samples lie below a node, how the tree is cut.

export class Bundle {
  constructor(data) {
    Object.assign(this, data);
    this.node = new Map(this.nodes.map((node) => [node.id, node]));
    this.root = this.fork(this.nodes.find((node) => node.parent === null).id);
    this.leaves = this.nodes.filter((node) => node.leaf !== null).sort((a, b) => a.leaf - b.leaf);
    this.depth = Math.max(...this.nodes.map((node) => node.depth));
    this.leafNumber = new Map(this.leaves.map((leaf) => [leaf.id, leaf.leaf]));
    this.below = new Map();
    for (const node of [...this.nodes].reverse()) {
      this.below.set(node.id, node.leaf !== null ? [node.id] : node.children.flatMap((child) => this.below.get(child)));
    }
    this.position = new Map(this.samples.row.map((row, i) => [row, i])); // of a row of X among the shown samples
    this.what = { images: "image", words: "text", table: "sample" }[this.kind];
  }

  // The node itself or, below nodes that pruning has left with one child, the next leaf or fork.
  fork(id) {
    const { children } = this.node.get(id);
    return children.length === 1 ? this.fork(children[0]) : id;
  }

  children(id) {
    return this.node.get(id).children.map((child) => this.fork(child));
  }

  parent(id) {
    let above = this.node.get(id).parent;
    while (above !== null && this.node.get(above).children.length === 1) above = this.node.get(above).parent;
    return above;
  }

  path(id) {
    const above = this.parent(id);
    return above === null ? [id] : [...this.path(above), id];
  }

  isLeaf(id) {
    return this.node.get(id).leaf !== null;
  }

  share(id) {
    return this.node.get(id).size / this.n_samples;
  }

  contains(id, leaf) {
    const span = this.below.get(id);
    const k = this.leafNumber.get(leaf);
    return this.leafNumber.get(span[0]) <= k && k <= this.leafNumber.get(span[span.length - 1]);
  }

  // The groups at a depth: nodes there, and leaves above it.
  level(depth) {
    const at = (id) => (this.isLeaf(id) || this.node.get(id).depth >= depth ? [id] : this.children(id).flatMap(at));
    return at(this.root);
  }

  mainClass(id) {
    const { labels } = this.node.get(id);
    if (!labels) return null;
    const most = labels.indexOf(Math.max(...labels));
    return { name: this.classes[most], share: labels[most] / Math.max(1, this.node.get(id).size) };
  }
}
