// A canvas that shows a window of a large drawing: the page scrolls, only what is seen is drawn, at the screen's own
// resolution.

class Surface {
  /** `draw(context, window)` paints what lies at window.x … of the drawing; `pick(x, y)` and `hover(x, y)` hear places. */
  constructor({ draw, pick, hover }) {
    Object.assign(this, { draw, width: 0, height: 0, viewWidth: 0, viewHeight: 0, dpr: 0 });
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.spacer = el("div.spacer", {}, this.canvas);
    this.node = el("div.surface", { onscroll: () => this.paint() }, this.spacer);
    const place = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.canvas.addEventListener("click", (event) => pick?.(...place(event)));
    this.canvas.addEventListener("pointermove", (event) => event.pointerType !== "touch" && hover?.(...place(event)));
    this.canvas.addEventListener("pointerleave", () => hover?.(-1, -1));
  }

  /** The size of the drawing, and the most height of what is seen of it. */
  layout(width, height, most, room) {
    const seenWidth = Math.min(room, Math.ceil(width));
    const bar = width > room ? 14 : 0;
    const seenHeight = Math.min(Math.ceil(height), most);
    this.node.style.height = `${seenHeight + bar}px`;
    this.node.style.width = `${Math.min(room, seenWidth + (height > most ? 14 : 0))}px`;
    this.spacer.style.width = `${Math.ceil(width)}px`;
    this.spacer.style.height = `${Math.ceil(height)}px`;
    [this.width, this.height] = [width, height];
    const [w, h] = [this.node.clientWidth || seenWidth, this.node.clientHeight || seenHeight];
    const dpr = Math.max(Surface.density, devicePixelRatio || 1);
    if (w !== this.viewWidth || h !== this.viewHeight || dpr !== this.dpr) {
      [this.viewWidth, this.viewHeight, this.dpr] = [w, h, dpr];
      this.canvas.width = Math.round(w * dpr);
      this.canvas.height = Math.round(h * dpr);
      this.canvas.style.width = `${w}px`;
      this.canvas.style.height = `${h}px`;
    }
  }

  /** Scroll so that a box of the drawing is seen, below and right of what stays in place; `centred`: in the middle. */
  show(x, y, width, height, left, top, centred = false) {
    const node = this.node;
    const along = (from, size, seen, fixed, now) => {
      if (centred && (from - fixed < now || from + size > now + seen)) return from - (seen + fixed) / 2;
      if (from - fixed < now) return from - fixed;
      return from + size > now + seen ? from + size - seen : now;
    };
    const wantX = along(x, width, this.viewWidth, left, node.scrollLeft);
    const wantY = along(y, height, this.viewHeight, top, node.scrollTop);
    if (wantX !== node.scrollLeft) node.scrollLeft = wantX;
    if (wantY !== node.scrollTop) node.scrollTop = wantY;
  }

  paint() {
    if (!this.viewWidth) return;
    const context = this.canvas.getContext("2d");
    context.setTransform(this.dpr, 0, 0, this.dpr, 0, 0);
    context.clearRect(0, 0, this.viewWidth, this.viewHeight);
    this.draw(context, {
      x: this.node.scrollLeft,
      y: this.node.scrollTop,
      width: this.viewWidth,
      height: this.viewHeight,
    });
  }
}

/** Fonts of drawings, in the page's sizes. */
const fonts = (scale = 1) => {
  const px = (size) => `${(size * rem() * scale).toFixed(2)}px`;
  const mono = ink("mono");
  const sans = ink("sans");
  return {
    label: `${px(0.8)} ${mono}`,
    strong: `600 ${px(0.8)} ${mono}`,
    number: `${px(0.7)} ${mono}`,
    axis: `italic ${px(0.8)} ${sans}`,
    small: `${px(0.68)} ${sans}`,
  };
};

/** A text cut to a width, with … for what is left out. */
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (context.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return text.slice(0, low) + "…";
}

const measuring = typeof document === "undefined" ? null : document.createElement("canvas").getContext("2d");
const widths = new Recent(20_000);
/** The width of a text; measured once, since the labels of one step are mostly those of the next. */
function widthOf(text, font) {
  return widths.get(`${font} ${text}`, () => {
    if (measuring.font !== font) measuring.font = font;
    return measuring.measureText(text).width;
  });
}
Surface.density = 1; // the least resolution of a drawing; more on paper

/** A view that is drawn on a canvas: `show` is told of a place, `draw` paints, `pick` and `hover` hear where one points. */
class Drawn {
  constructor(picture) {
    this.picture = picture;
    this.surface = new Surface({
      draw: (context, window) => this.draw(context, window),
      pick: (x, y) => this.pick(x, y),
      hover: (x, y) => this.hover(x, y),
    });
    this.node = this.surface.node;
  }

  hover() {}
}
