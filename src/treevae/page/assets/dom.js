// Elements, built without ever reading text as HTML: whatever a class or a word is called, it stays text.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "style") for (const [key, set] of Object.entries(value)) made.style.setProperty(key, set);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function drawing(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Icons are strokes on a square of 16.
const ICONS = {
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  fit: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3",
  turn: "M4 12V4h8M9 1l3 3-3 3",
  fold: "M4 6l4 4 4-4",
  unfold: "M6 4l4 4-4 4",
  close: "M4 4l8 8M12 4l-8 8",
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  help: "M5.8 6.2a2.2 2.2 0 1 1 3.4 1.9c-.8.5-1.2.9-1.2 1.7M8 12.4v.2",
};

export function icon(name) {
  const path = drawing("path", { d: ICONS[name], fill: name === "theme" ? "currentColor" : "none" });
  if (name === "theme") path.setAttribute("fill-opacity", "0.25");
  return drawing("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, path);
}

export function button(label, name, onclick, attributes = {}) {
  return element("button", { type: "button", "aria-label": label, title: label, onclick, ...attributes }, icon(name));
}

export const wholeNumber = (n) => Math.round(n).toLocaleString("en");

export const plural = (n, word) => (n === 1 ? word : `${word}s`);

export const counted = (n, word) => `${wholeNumber(n)} ${plural(n, word)}`;

export function percent(share) {
  const whole = Math.round(100 * share);
  if (share > 0 && whole === 0) return "<1 %";
  return share < 1 && whole === 100 ? ">99 %" : `${whole} %`;
}

// A number in any unit in seven letters or so: three digits that count, an exponent where it is very large or small.
export function figure(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const how = size >= 999999.5 || (size > 0 && size < 1e-3) ? { notation: "scientific", maximumSignificantDigits: 3 }
    : size < 1 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: size >= 1000 ? 0 : size >= 100 ? 1 : 2 };
  return (value || 0).toLocaleString("en", how).replace("E", "e").replaceAll("-", "−");
}
