// What needs the model, on a page that a server has sent: generate, walk, place, interpolate; and a run that still grows.

import { element, figure, percent } from "./dom.js";
import { picture } from "./pictures.js";

async function call(path, body) {
  const token = new URLSearchParams(location.search).get("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const isForm = body instanceof FormData;
  if (body && !isForm) headers["Content-Type"] = "application/json";
  const sent = body ? { method: "POST", headers, body: isForm ? body : JSON.stringify(body) } : { headers };
  const answer = await fetch(`api/${path}`, sent);
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(typeof found.detail === "string" ? found.detail : `The server answered ${answer.status}`);
  return found;
}

function field(name, label, attributes) {
  return element("label", { class: "field" }, label, element("input", { name, ...attributes }));
}

// A form whose button calls the server and shows what comes back, or why nothing does.
function form(id, title, note, fields, ask, show) {
  const result = element("div", { class: "result", "aria-live": "polite" });
  const made = element("form", { id, class: "part live" }, element("h3", {}, title, element("small", {}, note)), element("div", { class: "fields" }, fields, element("button", { type: "submit" }, title)), result);
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    made.classList.add("busy");
    try {
      result.replaceChildren(...[show(await ask(new FormData(made)))].flat());
    } catch (error) {
      result.replaceChildren(element("p", { class: "error" }, error.message));
    }
    made.classList.remove("busy");
  });
  return made;
}

const numberOf = (values, name) => Number(values.get(name));

const galleryOf = (bundle, shown) => element("div", { class: `gallery ${bundle.kind}` }, shown);

export function liveOfNode(bundle, node) {
  const fields = [field("n", "how many", { type: "number", min: 1, max: 64, value: 12 }), field("seed", "seed", { type: "number", min: 0, value: 0 }),
    field("temperature", "temperature", { type: "number", min: 0, max: 2, step: 0.1, value: 1 })];
  return form("generate", "Generate", "from this node", fields,
    (values) => call("generate", { node: node.id, n: numberOf(values, "n"), seed: numberOf(values, "seed"), temperature: numberOf(values, "temperature") }),
    (found) => galleryOf(bundle, found.samples.map((shown) => picture(bundle, shown, "generated"))));
}

export function liveTab(bundle, state) {
  return [placeForm(bundle, state), walkForm(bundle), interpolateForm(bundle)];
}

function placeForm(bundle, state) {
  const input = {
    images: () => element("label", { class: "field drop" }, "drop an image, or choose one", element("input", { type: "file", name: "image", accept: "image/*", required: true })),
    words: () => element("label", { class: "field wide" }, "a text", element("textarea", { name: "text", rows: 4, required: true })),
    table: () => element("label", { class: "field wide" }, `a row: ${bundle.n_features} numbers`, element("textarea", { name: "row", rows: 3, required: true })),
  }[bundle.kind]();
  const file = input.querySelector("input[type=file]");
  if (file) {
    input.addEventListener("dragover", (event) => event.preventDefault());
    input.addEventListener("drop", (event) => {
      event.preventDefault();
      file.files = event.dataTransfer.files;
      file.form.requestSubmit();
    });
  }
  const ask = (values) => {
    if (bundle.kind === "images") {
      const body = new FormData();
      body.append("file", values.get("image"));
      return call("place/image", body);
    }
    if (bundle.kind === "words") return call("place", { text: values.get("text") });
    return call("place", { row: values.get("row").split(/[\s,;]+/).filter(Boolean).map(Number) });
  };
  return form("place", "Place", "a new sample in the tree", [input], ask, (found) => {
    state.select(found.leaf, state.opened, "live");
    return placed(bundle, found);
  });
}

function placed(bundle, found) {
  const steps = found.path.map(({ node, probability }) => element("li", {}, bundle.node.get(node).name, element("b", {}, percent(probability))));
  const shown = found.reconstruction ? element("figure", {}, picture(bundle, found.reconstruction, "reconstruction"), element("figcaption", {}, "as the model sees it")) : null;
  return element("div", { class: "placed", "data-leaf": found.leaf }, shown, element("ol", { class: "way" }, steps));
}

function leafRow(bundle, { leaf, probability, picture: shown }) {
  const { name, leaf: number } = bundle.node.get(leaf);
  return element("figure", { title: name }, picture(bundle, shown, name), element("figcaption", {}, `${number}${probability === undefined ? "" : ` · ${percent(probability)}`}`));
}

function walkForm(bundle) {
  const fields = [field("seed", "seed", { type: "number", min: 0, value: 0 })];
  return form("walk", "Walk", "a draw of the root through all leaves", fields, (values) => call("walk", { sample: null, seed: numberOf(values, "seed") }),
    (found) => galleryOf(bundle, found.leaves.map((leaf) => leafRow(bundle, leaf))));
}

function interpolateForm(bundle) {
  const most = bundle.n_shown - 1;
  const [a, b] = [bundle.leaves[0].typical[0] ?? 0, bundle.leaves.at(-1).typical[0] ?? most];
  const fields = [field("a", "from sample", { type: "number", min: 0, max: most, value: a }), field("b", "to sample", { type: "number", min: 0, max: most, value: b }), field("steps", "steps", { type: "number", min: 2, max: 16, value: 8 })];
  return form("interpolate", "Interpolate", "between two samples", fields, (values) => call("interpolate", { a: numberOf(values, "a"), b: numberOf(values, "b"), steps: numberOf(values, "steps") }),
    (found) => galleryOf(bundle, found.frames.map((frame) => leafRow(bundle, frame))));
}

// A run that is still training: asked every two seconds; a changed tree brings a new bundle.
export function watch(bundle, redraw) {
  if (!bundle.live || !bundle.watch) return;
  let version = bundle.watch.version ?? null;
  const ask = async () => {
    try {
      const status = await call("status");
      document.getElementById("status").textContent = statusLine(status);
      if (status.version !== version) {
        version = status.version;
        redraw(await call("bundle"));
        document.getElementById("status").textContent = statusLine(status);
      }
      if (status.finished) return;
    } catch (error) {
      document.getElementById("status").textContent = `No answer: ${error.message}`;
    }
    setTimeout(ask, 2000);
  };
  ask();
}

function statusLine({ stage, epoch, epochs, loss, finished }) {
  if (finished) return "training has ended";
  if (!stage) return "waiting for the first epoch";
  return `training: ${stage}, epoch ${epoch}${epochs ? ` of ${epochs}` : ""}${loss === undefined ? "" : `, loss ${figure(loss)}`}`;
}
