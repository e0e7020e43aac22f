// What needs the model, on a page that a server has sent: generate, place, walk, interpolate.

import { element, figure, percent } from "./dom.js";
import { picture, samplePicture } from "./pictures.js";

async function call(path, body) {
  const isForm = body instanceof FormData;
  const headers = isForm ? {} : { "Content-Type": "application/json" };
  const answer = await fetch(`/api/${path}`, { method: "POST", headers, body: isForm ? body : JSON.stringify(body) });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.error ?? `The server answered ${answer.status}`);
  return found;
}

const generateForms = new Map(); // by node: the panel is drawn anew at every choice, what they show stays

function field(name, label, attributes) {
  return element("label", { class: "field" }, label, element("input", { name, ...attributes }));
}

const seedField = () => field("seed", "seed", { type: "number", min: 0, max: 4294967295, value: 0, required: true });

// A form whose button calls the server and shows what comes back, or why nothing does.
function form(id, title, note, fields, ask, show) {
  const result = element("div", { class: "result", "aria-live": "polite" });
  const made = element("form", { id, class: "part live" }, element("h3", {}, title, element("small", {}, note)),
    element("div", { class: "fields" }, fields, element("button", { type: "submit" }, title)), result);
  let last = 0; // the question that was asked last: answers to earlier ones come too late
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const mine = ++last;
    made.classList.add("busy");
    const answer = await Promise.resolve(new FormData(made)).then(ask).then(
      (found) => () => [show(found)].flat(), (error) => () => [element("p", { class: "error" }, error.message)]);
    if (mine !== last) return;
    result.replaceChildren(...answer());
    made.classList.remove("busy");
  });
  return made;
}

const numberOf = (values, name) => Number(values.get(name));

// The position in the bundle of the sample whose row was given, null without one.
const sampleOf = (bundle, values, name) =>
  (values.get(name) === "" ? null : bundle.position.get(numberOf(values, name)));

const galleryOf = (bundle, shown) => element("div", { class: `gallery ${bundle.kind}` }, shown);

export function liveOfNode(bundle, node) {
  if (!generateForms.has(node.id)) generateForms.set(node.id, generateForm(bundle, node));
  return generateForms.get(node.id);
}

function generateForm(bundle, node) {
  const fields = [field("n", "how many", { type: "number", min: 1, max: 64, value: 12, required: true }), seedField(),
    field("temperature", "temperature", { type: "number", min: 0, max: 2, step: 0.1, value: 1, required: true })];
  return form("generate", "Generate", "samples that pass through this node", fields,
    (values) => call("generate", {
      node: node.id, n: numberOf(values, "n"), seed: numberOf(values, "seed"),
      temperature: numberOf(values, "temperature"),
    }),
    (found) => galleryOf(bundle, found.samples.map((shown) => picture(bundle, shown, "generated"))));
}

export function liveTab(bundle, state) {
  return [placeForm(bundle, state), walkForm(bundle), interpolateForm(bundle, state)];
}

function placeForm(bundle, state) {
  const kind = bundle.accepts[0]; // the first is the handiest
  const fields = {
    image: imageFields,
    text: () => [wide("text", "a text", 4)],
    row: () => [wide("row", `a row: ${bundle.n_features} numbers`, 3)],
  }[kind]();
  const ask = (values) => {
    if (kind === "image") {
      values.set("invert", values.has("invert") ? "true" : "false");
      return call("place/image", values);
    }
    if (kind === "text") return call("place", { text: values.get("text") });
    return call("place", { row: rowOf(bundle, values.get("row")) });
  };
  return form("place", "Place", "a new sample in the tree", fields, ask, (found) => {
    state.select(found.leaf, state.opened, "live");
    return placed(bundle, found);
  });
}

// The numbers of a row. Among words that spaces or semicolons part, a lone comma may be meant as a decimal one.
function rowOf(bundle, text) {
  const words = text.split(/[\s;]+/).filter(Boolean);
  const comma = words.length > 1 && words.find((word) => /^[-+]?\d*,\d+$/.test(word));
  const numbers = text.split(/[\s,;]+/).filter(Boolean);
  const odd = comma || numbers.find((word) => !Number.isFinite(Number(word)));
  if (!odd) return numbers.map(Number);
  throw new Error(`row: “${odd}” is not one number; give ${bundle.n_features} numbers, parted by spaces or commas. `
    + "Decimals take a point: 1.5");
}

const wide = (name, label, rows) =>
  element("label", { class: "field wide" }, label, element("textarea", { name, rows, required: true }));

function imageFields() {
  const file = element("input", { type: "file", name: "image", accept: "image/*", required: true });
  const drop = element("label", { class: "field drop" }, "drop an image here, or choose one", file);
  drop.addEventListener("dragover", (event) => event.preventDefault());
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    file.files = event.dataTransfer.files;
    file.form.requestSubmit();
  });
  const again = () => file.files.length && file.form.requestSubmit();
  const invert = element("input", { type: "checkbox", name: "invert", onchange: again });
  return [drop, element("label", { class: "field check" }, invert, "exchange black and white")];
}

function placed(bundle, found) {
  const path = found.path.filter(({ node }) => bundle.fork(node) === node); // without nodes that have one child
  const steps = path.map(({ node, probability }) =>
    element("li", {}, bundle.node.get(node).name, element("b", {}, percent(probability))));
  const shown = bundle.kind === "images" ? [
    pictured(bundle, found.sample, "as the model gets it"),
    pictured(bundle, found.reconstruction, "as it reconstructs it"),
  ] : compared(found.sample.card, found.reconstruction.card);
  return element("div", { class: `placed ${bundle.kind}`, "data-leaf": found.leaf },
    shown, element("ol", { class: "way" }, steps));
}

function pictured(bundle, shown, text) {
  return element("figure", {}, picture(bundle, shown, text), element("figcaption", {}, text));
}

// The same features, or words, of a sample and of its reconstruction, line by line.
function compared(sample, reconstruction) {
  const head = [element("td"), ...["sample", "reconstruction"].map((name) => element("th", { scope: "col" }, name))];
  const rows = sample.map(({ name, value }, i) => element("tr", {}, element("th", { scope: "row", title: name }, name),
    element("td", {}, figure(value)), element("td", {}, figure(reconstruction[i].value))));
  return element("table", { class: "terms compared" },
    element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows));
}

function leafRow(bundle, { leaf, probability, picture: shown }) {
  const { name, leaf: number } = bundle.node.get(leaf);
  return element("figure", { title: name }, picture(bundle, shown, name),
    element("figcaption", {}, `${number} · ${percent(probability)}`));
}

// A field for the number of a sample, the row of X as everywhere on the page, with its picture. The server counts the
// samples of the bundle, which may hold only some of the rows.
function sampleField(bundle, name, label, attributes) {
  const seen = element("span", { class: "seen" });
  const made = field(name, label, { type: "number", min: 0, max: bundle.n_samples - 1, ...attributes });
  const input = made.querySelector("input");
  const look = () => {
    const i = input.value === "" ? undefined : bundle.position.get(Number(input.value));
    const missing = input.value !== "" && i === undefined;
    input.setCustomValidity(missing ? notShown(bundle, Number(input.value)) : "");
    seen.replaceChildren(...(i === undefined ? [] : [samplePicture(bundle, i)]));
  };
  input.addEventListener("input", look);
  look();
  made.append(seen);
  return made;
}

function notShown(bundle, row) {
  const nearest = d3.least(bundle.samples.row, (other) => Math.abs(other - row));
  return `This page holds ${bundle.n_shown} of ${bundle.n_samples} samples, not ${row}; the nearest is ${nearest}.`;
}

function walkForm(bundle) {
  const fields = [sampleField(bundle, "sample", "sample, or none", {}), seedField()];
  return form("walk", "Walk", "through all leaves, of a sample or of a draw of the root", fields,
    (values) => call("walk", { sample: sampleOf(bundle, values, "sample"), seed: numberOf(values, "seed") }),
    (found) => galleryOf(bundle, found.leaves.map((leaf) => leafRow(bundle, leaf))));
}

function interpolateForm(bundle, state) {
  const { row } = bundle.samples;
  const first = row[bundle.leaves[0].typical[0] ?? 0];
  const last = row[bundle.leaves.at(-1).typical[0] ?? bundle.n_shown - 1];
  const fields = [
    sampleField(bundle, "a", "from sample", { value: first, required: true }),
    sampleField(bundle, "b", "to sample", { value: last, required: true }),
    field("steps", "steps", { type: "number", min: 2, max: 16, value: 8, required: true }),
  ];
  const note = "between two samples: click them on the map, or give their numbers";
  const made = form("interpolate", "Interpolate", note, fields,
    (values) => call("interpolate", {
      a: sampleOf(bundle, values, "a"), b: sampleOf(bundle, values, "b"), steps: numberOf(values, "steps"),
    }),
    (found) => galleryOf(bundle, found.frames.map((frame) => leafRow(bundle, frame))));
  pickOnMap(bundle, state, [made.elements.a, made.elements.b]);
  return made;
}

// While this tab is open, clicks on points of the map fill the fields in turn.
function pickOnMap(bundle, state, inputs) {
  let next = 0;
  state.listen(["chosen"], () => {
    inputs[next].value = bundle.samples.row[state.chosen];
    inputs[next].dispatchEvent(new Event("input"));
    next = 1 - next;
  });
}
