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
    const group = groups.includes(id);
    const across = group ? end : size.start + depth.get(id) * size.level;
    const [x, y] = upright ? [along, across] : [across, along];
    return [id, { id, group, along, across, level: depth.get(id), x, y }];
  }));
  const extent = upright ? [size.first * 2 + groups.length * size.step, end + size.card[1] + size.start * 0.4]
    : [end + size.card[0] + rem, size.first * 2 + groups.length * size.step];
  return { nodes, groups, upright, ...size, width: extent[0], height: extent[1] };
}

function uprightSize(n, levels, width, height, rem, bundle) {
  const step = clamp((width - 2 * rem) / n, 5.6 * rem, (bundle.kind === "images" ? 20 : 17) * rem);
  const pictures = bundle.kind === "images";
  const ratio = pictures ? bundle.sprites.tile[0] / bundle.sprites.tile[1] : 1;
  const start = 3.4 * rem;
  const inner = step - 1.5 * rem;
  const longest = Math.max(...bundle.nodes.map(({ name }) => name.length));
  const ofName = longest * 0.55 * rem > step - rem ? 2 : 1; // lines
  const header = ((bundle.classes ? 4.2 : 3) + 1.15 * ofName) * rem;
  const room = height - start - header - levels * 3.1 * rem - 2.2 * rem;
  const rows = pictures ? clamp(Math.floor(room / ((inner / 3) * ratio)), 1, 4) : 0;
  const body = pictures ? (inner / 3) * ratio * rows + rem
    : clamp(room, 4 * rem, (bundle.kind === "words" ? 6 : 10) * rem);
  const card = [step - 0.5 * rem, header + body];
  const level = clamp((height - start - card[1] - 1.5 * rem) / levels, 3.1 * rem, 12 * rem);
  const first = Math.max(rem, (width - n * step) / 2);
  const lines = Math.max(1, Math.floor((body - 0.8 * rem) / (1.02 * rem))); // of a card of features
  const most = Math.min(2.6 * rem, step * 0.42, level * 0.55);
  return { step, start, level, first, card, pictures: 3 * rows, lines, most };
}

function lyingSize(n, levels, screen, height, rem, bundle) {
  // many leaves are seen from afar, where the page is wider too
  const narrow = screen < 36 * rem;
  const least = leafHeight(bundle, narrow) * rem;
  const afar = Math.max(1, (least * n + 2 * rem) / height);
  const width = screen * afar;
  const stacked = narrow && bundle.kind !== "images"; // there words and features stand below the name
  const step = clamp((height - 2 * rem) / n, least, 7 * rem);
  const cardWidth = narrow ? Math.max(10.5 * rem, screen - levels * 2.1 * rem - 4.2 * rem)
    : clamp(width * 0.48, 16 * rem, 56 * rem);
  const start = narrow ? 2.9 * rem : 3.6 * rem;
  const level = clamp((width - cardWidth - start - 2 * rem) / levels, narrow ? 1.9 * rem : 2.6 * rem, 14 * rem * afar);
  const card = [Math.min(cardWidth, Math.max(11 * rem, width - start - levels * level - rem)), step - 0.4 * rem];
  const first = Math.max(rem * 0.8, (height - n * step) / 2);
  const ratio = bundle.sprites ? bundle.sprites.tile[1] / bundle.sprites.tile[0] : 1;
  const tile = Math.min(card[1] - 0.6 * rem, 4.4 * rem);
  const pictures = clamp(Math.floor((card[0] - (narrow ? 9 : 12.6) * rem) / (tile * ratio + 2)), 1, 12);
  const room = card[1] - (stacked ? 2.9 : 0.7) * rem;
  const lines = Math.max(1, Math.floor(room / (1.02 * rem))); // of a card of features
  const most = Math.min(2.4 * rem, step * 0.5, level * 0.6);
  return { step, start, level, first, card, pictures, tile, narrow, stacked, lines, most };
}

// How many rem of height a leaf of a lying tree needs.
export function leafHeight(bundle, narrow) {
  return narrow && bundle.kind !== "images" ? 5.4 : 2.45;
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
      const [a, b, c, d, e] = points.map((point) => (layout.upright ? point : point.toReversed()).join());
      found.push({ id: child, width: Math.max(wide, 1.6), d: `M${a}C${b} ${c} ${d}L${e}` });
    }
  }
  return found;
}

// The room beside a fork for its caption, on the side that its own branch does not come from: up to the next branch
// that passes there; half of it where another caption may face it.
export function roomBeside(bundle, layout, id) {
  const here = layout.nodes.get(id);
  const side = isFirst(bundle, id) ? -1 : 1;
  let room = (side < 0 ? here.along : layout.width - here.along) - 8;
  for (const node of layout.nodes.values()) {
    const away = side * (node.along - here.along);
    const above = bundle.parent(node.id);
    if (away <= 0 || above === null || layout.nodes.get(above).level >= here.level) continue;
    if (node.level === here.level && !node.group) room = Math.min(room, away / 2);
    else if (node.level === here.level || (node.group && node.level < here.level)) room = Math.min(room, away - 4);
  }
  return { side, room };
}

export function isFirst(bundle, id) {
  const above = bundle.parent(id);
  return above === null || bundle.children(above)[0] === id;
}
