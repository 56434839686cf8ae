// Elements. Whatever a page shows goes through here as text: nothing is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element: attributes, `on…` listeners, and children that are nodes or text. */
function el(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  return filledIn(node, attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filledIn(document.createElementNS(SVG, tag), attributes, children);
}

function filledIn(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child || child === 0));
  return node;
}

const put = (node, ...children) => node.replaceChildren(...children.flat().filter((child) => child || child === 0));
const clamp = (value, low, high) => Math.max(low, Math.min(value, high));
const reduced = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A colour or font of the style sheet, and the size of its letters in pixels: asked for anew at the start of a drawing. */
const looked = new Map();
const lookAnew = () => looked.clear();
function lookUp(key, find) {
  if (!looked.has(key)) looked.set(key, find(getComputedStyle(document.documentElement)));
  return looked.get(key);
}
const ink = (name) => lookUp(name, (style) => style.getPropertyValue(`--${name}`).trim());
const rem = () => lookUp(" rem", (style) => parseFloat(style.fontSize) || 16);

/** Runs `what` when the browser has drawn and is idle; a newer call of the same `key` takes its place. */
const waiting = new Map();
function later(key, delay, what) {
  clearTimeout(waiting.get(key));
  waiting.set(key, setTimeout(what, delay));
}
