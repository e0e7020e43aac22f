// The page: reads its bundle and puts the views together.

import { Bundle } from "./bundle.js";
import { State } from "./state.js";
import { HeaderView } from "./header.js";
import { TreeView } from "./tree.js";
import { MapView } from "./map.js";
import { PanelView } from "./panel.js";
import { installSheets } from "./pictures.js";
import { listenToKeys } from "./keys.js";

const bundle = new Bundle(JSON.parse(document.getElementById("bundle").textContent));
const state = new State(bundle);
installSheets(bundle);
new HeaderView(bundle, state);
const tree = new TreeView(bundle, state);
const panel = new PanelView(bundle, state);
new MapView(bundle, state);
listenToKeys(bundle, state, tree, panel);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.tell("tree"));
document.documentElement.dataset.ready = "yes";
requestAnimationFrame(() => setTimeout(() => performance.mark("ready"))); // drawn, and free to hear
