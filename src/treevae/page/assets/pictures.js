// Samples as the reader sees them: tiles of a sprite sheet, or cards of words or features.

import { element, figure } from "./dom.js";

export function installSheets(bundle) {
  if (!bundle.sprites) return;
  const { sheets, columns, per_sheet, count, tile } = bundle.sprites;
  const rules = sheets.map((url, i) => `.sheet-${i}{background-image:url("${url}")}`);
  rules.push(`:root{--tile-ratio:${tile[1]}/${tile[0]}}`);
  const sheet = document.getElementById("sheets") ?? document.head.appendChild(element("style", { id: "sheets" }));
  sheet.textContent = rules.join("\n");
  bundle.sheetRows = sheets.map((_, i) => Math.min(columns, Math.ceil((count - i * per_sheet) / columns)));
}

// A picture is the number of a sprite, a card, or what the server sends: {png} or {card}.
export function picture(bundle, shown, label = "") {
  if (shown === null || shown === undefined) return element("span", { class: "tile" });
  if (typeof shown === "number") return tileOf(bundle, shown, label);
  if (Array.isArray(shown)) return cardOf(bundle, shown);
  if (shown.png) return element("img", { class: "tile", src: shown.png, alt: label });
  return cardOf(bundle, shown.card);
}

function tileOf(bundle, number, label) {
  const { columns, per_sheet } = bundle.sprites;
  const sheet = Math.floor(number / per_sheet);
  const place = number % per_sheet;
  const rows = bundle.sheetRows[sheet];
  const at = (i, n) => (n > 1 ? `${(100 * i) / (n - 1)}%` : "0%");
  const style = {
    "background-size": `${100 * columns}% ${100 * rows}%`,
    "background-position": `${at(place % columns, columns)} ${at(Math.floor(place / columns), rows)}`,
  };
  const said = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return element("span", { class: `tile sheet-${sheet}`, style, ...said });
}

// `full` is the number of standard deviations that fills a feature's bar.
export function cardOf(bundle, entries, most = 99, full = 3) {
  const shown = entries.slice(0, most);
  return bundle.kind === "table" ? featureCard(shown, full) : wordCard(shown);
}

function wordCard(entries) {
  const heaviest = Math.max(...entries.map((entry) => entry.value), 1e-9);
  const words = entries.map(({ name, value }) =>
    element("span", { class: "word", style: { "--weight": value / heaviest }, title: `${name} ${figure(value)}` },
      name));
  return element("span", { class: "card words" }, words.length ? words : "no words");
}

function featureCard(entries, full) {
  if (!entries.length) return element("span", { class: "card" }, "nothing stands out");
  return element("span", { class: "card features" }, entries.map(({ name, value, z }) => {
    const length = Math.min(1, Math.abs(z) / full) * 50;
    const bar = element("span", {
      class: `bar ${z > 0 ? "more" : "less"}`,
      style: { left: z > 0 ? "50%" : `${50 - length}%`, width: `${length}%` },
    });
    const title = `${name} ${figure(value)}, ${figure(z)} standard deviations from the mean`;
    return element("span", { class: "feature", title }, element("span", { class: "label" }, name),
      element("span", { class: "gauge" }, bar), element("span", { class: "value" }, figure(value)));
  }));
}

export function sampleShown(bundle, i) {
  return bundle.samples.sprite ? bundle.samples.sprite[i] : bundle.samples.card[i];
}

export function samplePicture(bundle, i) {
  const { label, row } = bundle.samples;
  const said = `sample ${row[i]}${label ? `, ${bundle.classes[label[i]]}` : ""}`;
  const made = picture(bundle, sampleShown(bundle, i), said);
  made.title = said;
  return made;
}
