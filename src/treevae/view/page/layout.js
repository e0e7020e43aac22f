// Where the nodes of the shown tree stand, in pixels: upright with its leaves side by side, or lying on its side.

// `along` runs from leaf to leaf, `across` from the root to the leaves.
export function layoutTree(bundle, state, width, height, rem, upright) {
  const groups = state.groups;
  const visible = state.visible;
  const rank = new Map();
  const depth = new Map();
  groups.forEach((id, i) => rank.set(id, i));
  const place = (id, level) => {
    depth.set(id, level);
    if (rank.has(id)) return rank.get(id);
    const below = bundle.children(id).map((child) => place(child, level + 1));
    rank.set(id, d3.mean(below));
    return rank.get(id);
  };
  place(bundle.root, 0);
  const levels = Math.max(1, ...depth.values());
  const size = upright ? uprightSize(groups.length, levels, width, height, rem, bundle)
    : lyingSize(groups.length, levels, width, height, rem, bundle);
  const end = size.start + levels * size.level;
  const nodes = new Map(visible.map((id) => {
    const along = size.first + (rank.get(id) + 0.5) * size.step;
    const across = rank.get(id) === groups.indexOf(id) ? end : size.start + depth.get(id) * size.level;
    const group = groups.includes(id);
    return [id, { id, group, along, across: group ? end : across, x: upright ? along : across, y: upright ? across : along }];
  }));
  for (const node of nodes.values()) {
    node.x = upright ? node.along : node.across;
    node.y = upright ? node.across : node.along;
  }
  const extent = upright ? [size.first * 2 + groups.length * size.step, end + size.card[1] + size.start * 0.4]
    : [end + size.card[0] + rem, size.first * 2 + groups.length * size.step];
  return { nodes, groups, upright, ...size, width: extent[0], height: extent[1] };
}

function uprightSize(n, levels, width, height, rem, bundle) {
  const step = clamp((width - 2 * rem) / n, 5.6 * rem, 13 * rem);
  const pictures = bundle.kind === "images";
  const ratio = pictures ? bundle.sprites.tile[0] / bundle.sprites.tile[1] : 1;
  const start = 3.4 * rem;
  const inner = step - 1.5 * rem;
  const header = (bundle.classes ? 5.3 : 4.1) * rem;
  const room = height - start - header - levels * 3.1 * rem - 2.2 * rem;
  const rows = pictures ? clamp(Math.floor(room / ((inner / 3) * ratio)), 2, 4) : 0;
  const body = pictures ? (inner / 3) * ratio * rows + rem : clamp(room, 6 * rem, 15 * rem);
  const card = [step - 0.5 * rem, header + body];
  const level = clamp((height - start - card[1] - 1.5 * rem) / levels, 3.1 * rem, 8 * rem);
  const first = Math.max(rem, (width - n * step) / 2);
  return { step, start, level, first, card, pictures: 3 * rows, most: Math.min(2.6 * rem, step * 0.42, level * 0.55) };
}

function lyingSize(n, levels, width, height, rem, bundle) {
  const step = clamp((height - 2 * rem) / n, 2.9 * rem, 7 * rem);
  const narrow = width < 36 * rem;
  const cardWidth = narrow ? Math.max(11.5 * rem, width - levels * 2.1 * rem - 4.2 * rem) : clamp(width * 0.46, 16 * rem, 42 * rem);
  const start = narrow ? 1.6 * rem : 4.8 * rem;
  const level = clamp((width - cardWidth - start - 2 * rem) / levels, narrow ? 1.9 * rem : 2.6 * rem, 9 * rem);
  const card = [Math.min(cardWidth, Math.max(11 * rem, width - start - levels * level - rem)), step - 0.4 * rem];
  const first = Math.max(rem * 0.8, (height - n * step) / 2);
  const ratio = bundle.sprites ? bundle.sprites.tile[1] / bundle.sprites.tile[0] : 1;
  const tile = Math.min(card[1] - 0.6 * rem, 4.4 * rem);
  const pictures = clamp(Math.floor((card[0] - (narrow ? 7.2 : 11.5) * rem) / (tile * ratio + 2)), 1, 12);
  return { step, start, level, first, card, pictures, tile, narrow, most: Math.min(2.4 * rem, step * 0.5, level * 0.6) };
}

export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

// Branches as ribbons: side by side the children's are as wide as the one that comes in.
export function ribbons(bundle, layout) {
  const found = [];
  const scale = layout.most;
  for (const node of layout.nodes.values()) {
    if (node.group) continue;
    let edge = node.along - (bundle.share(node.id) * scale) / 2;
    for (const child of bundle.children(node.id)) {
      const wide = bundle.share(child) * scale;
      const to = layout.nodes.get(child);
      const from = [edge + wide / 2, node.across];
      edge += wide;
      const bend = node.across + layout.level;
      const half = (node.across + bend) / 2;
      const points = [from, [from[0], half], [to.along, half], [to.along, bend], [to.along, to.across]];
      const [a, b, c, d, e] = points.map(([along, across]) => (layout.upright ? `${along},${across}` : `${across},${along}`));
      found.push({ id: child, width: Math.max(wide, 1.6), d: `M${a}C${b} ${c} ${d}L${e}` });
    }
  }
  return found;
}
