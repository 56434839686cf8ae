// A plane as coloured cells: a query × key pattern, any matrix, or words with their numbers, as the lens has. Only the
// cells that are seen are drawn; large planes are a window that follows the cursor.

/** Whether two planes have the same axes and sizes, so that what is seen of one can be kept for the other. */
const sameFrame = (one, other) =>
  one.view.rows === other.view.rows &&
  one.view.cols === other.view.cols &&
  one.rows === other.rows &&
  one.cols === other.cols;

class Heatmap extends Drawn {
  show(now) {
    const { plane, cursor, theme, room, zoom } = now;
    const before = this.now;
    this.now = now;
    const same = before && before.plane === plane && before.theme === theme && before.zoom === zoom;
    const fresh = !same;
    if (
      fresh ||
      before.room.width !== room.width ||
      before.room.height !== room.height ||
      before.fonts.label !== now.fonts.label
    ) {
      this.over = null;
      this.measure();
    }
    this.cell = plane.cellOf(cursor);
    const [row, col] = this.cell;
    const { gutter, head, cw, ch } = this;
    this.surface.show(
      gutter + col * cw,
      head + row * ch,
      cw,
      ch,
      gutter,
      head,
      fresh && !(before && sameFrame(before.plane, plane)),
    );
    this.surface.paint();
  }

  measure() {
    const { plane, theme, room, zoom, fonts } = this.now;
    const { rows, cols, view } = plane;
    const unit = rem();
    this.scale = new Scale(plane.stats, plane.warm, theme, plane.step.whole);
    this.rowLabels = Array.from({ length: rows }, (_, r) => plane.label(view.rows, r));
    this.colLabels = Array.from({ length: cols }, (_, c) => plane.label(view.cols, c));
    const longest = (labels) =>
      labels.slice(0, 600).reduce((most, label) => Math.max(most, widthOf(label, fonts.strong)), 0);
    const words = [view.cols, DEPTH].includes(DEPTH) && view.cols === DEPTH ? true : TOKEN_AXES.includes(view.cols);
    this.gutter = Math.ceil(
      Math.min(
        Math.max(longest(this.rowLabels), widthOf(`${view.rows} ↓`, fonts.axis)) + unit * 0.7,
        room.width * 0.3,
        unit * 9,
      ),
    );
    const across = longest(this.colLabels);
    const space = Math.max(60, room.width - this.gutter - 1);

    // The size of cells: all of them at once where that can be read, else a window.
    const square = view.kind === "attention";
    let cw = space / Math.max(1, cols);
    if (plane.texts) cw = clamp(cw, unit * 5.2, unit * 9);
    else if (square) cw = Math.min(cw, unit * 3.4);
    else cw = clamp(cw, words ? unit * 0.5 : 3, unit * (words ? 6 : 3.4));
    this.slanted = words && across > cw - 6;
    const tilt = Math.min(across, unit * 6.2);
    this.head = Math.ceil(this.slanted ? (cw >= unit * 0.9 ? tilt * 0.82 + unit * 1.1 : unit * 1.5) : unit * 1.7);
    const height = Math.max(unit * 6, room.height - this.head);
    let ch = height / Math.max(1, rows);
    if (square) {
      const side = Math.min(cw, ch);
      ch = cw = side < 1 ? unit * 0.62 : side;
    } else if (rows <= 24) ch = clamp(ch, unit * 1.15, unit * 2.1);
    else ch = ch < unit * 0.55 ? unit * 1.35 : Math.min(ch, unit * 2.1);
    if (zoom) [cw, ch] = [cw, ch].map((side) => clamp(side * 1.35 ** zoom, 1, unit * 8));
    if (this.slanted && across <= cw - 6) this.slanted = false;
    [this.cw, this.ch] = [cw, ch];

    // Numbers where there is room for the decimals that tell the values apart.
    const digit = (this.digitWidth = widthOf("0", fonts.number));
    const { low, high, limit, signed } = plane.stats;
    const fits = Math.floor((cw - 3) / digit);
    const least = wanted(limit || 1);
    const top = plane.warm ? Math.min(high, 0.9) : high;
    this.places = plane.step.whole ? 0 : decimals(low, top, fits, Math.max(2, least));
    const tells =
      least > 0 && (limit || 1) * 10 ** this.places >= 1 && cell(limit || 1, 0).length + (signed ? 1 : 0) <= fits;
    this.numbered =
      !plane.texts &&
      ch >= unit * 0.95 &&
      (plane.step.whole ? cell(high, 0).length <= fits : this.places >= 0 && tells);
    const leaning = this.slanted && cw >= unit * 0.9 ? tilt * 0.55 : 0; // the last label stands out beside its column
    this.surface.layout(
      this.gutter + cols * cw + Math.min(leaning, Math.max(0, room.width - this.gutter - cols * cw - 1)) + 1,
      this.head + rows * ch + 1,
      rows <= 24 && !zoom ? Infinity : room.height,
      room.width,
    );
  }

  window({ x, y, width, height }) {
    const { plane } = this.now;
    const { gutter, head, cw, ch } = this;
    const first = [Math.max(0, Math.floor(y / ch)), Math.max(0, Math.floor(x / cw))];
    const last = [
      Math.min(plane.rows, Math.ceil((y + height - head) / ch)),
      Math.min(plane.cols, Math.ceil((x + width - gutter) / cw)),
    ];
    return [first, last];
  }

  draw(context, seen) {
    const { gutter, head, cw, ch } = this;
    const { plane } = this.now;
    const [[r0, c0], [r1, c1]] = this.window(seen);
    const [left, top] = [gutter - seen.x, head - seen.y];
    context.save();
    context.beginPath();
    context.rect(gutter - 1, head - 1, seen.width, seen.height);
    context.clip();
    if (Math.min(cw, ch) < 9 || (r1 - r0) * (c1 - c0) > 6000) this.fill(context, r0, r1, c0, c1, left, top);
    else this.cells(context, r0, r1, c0, c1, left, top);
    this.marks(context, left, top);
    context.restore();
    this.labels(context, seen, r0, r1, c0, c1, left, top);
  }

  /** Cells as single points of an image, drawn large: fast, for very many. */
  fill(context, r0, r1, c0, c1, left, top) {
    const { plane } = this.now;
    const { cw, ch, scale } = this;
    const [height, width] = [r1 - r0, c1 - c0];
    if (!height || !width) return;
    const image = new ImageData(width, height);
    const points = new Uint32Array(image.data.buffer);
    const paper = pointOf(rgb(ink("paper").slice(1)));
    for (let r = r0, at = 0; r < r1; r++) {
      for (let c = c0; c < c1; c++, at++) {
        const i = r * plane.cols + c;
        const value = plane.values[i];
        points[at] = scale.point(value, plane.isMasked(i, value) ? paper : undefined);
      }
    }
    this.buffer ??= document.createElement("canvas");
    this.buffer.width = width;
    this.buffer.height = height;
    this.buffer.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.buffer, left + c0 * cw, top + r0 * ch, width * cw, height * ch);
  }

  /** Cells one by one, with their numbers or words where there is room. */
  cells(context, r0, r1, c0, c1, left, top) {
    const { plane, theme, fonts } = this.now;
    const { cw, ch, scale, numbered, places } = this;
    const faint = ink("faint");
    const gap = Math.min(cw, ch) > 14 ? 1.5 : 1;
    context.font = fonts.number;
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (let r = r0; r < r1; r++) {
      for (let c = c0; c < c1; c++) {
        const i = r * plane.cols + c;
        const value = plane.values[i];
        const [x, y] = [left + c * cw, top + r * ch];
        const middle = [x + cw / 2 - gap / 2, y + ch / 2];
        if (plane.isMasked(i, value)) {
          context.fillStyle = faint;
          context.fillRect(middle[0] - 1, middle[1] - 1, 2, 2);
          continue;
        }
        const known = Number.isFinite(value);
        const [fill, on] = known ? scale.style(value) : ODD[theme];
        context.fillStyle = fill;
        context.fillRect(x, y, cw - gap, ch - gap);
        context.fillStyle = on;
        if (!known) {
          if (cw >= widthOf("NaN", fonts.number) + 2) context.fillText(special(value), middle[0], middle[1]);
        } else if (plane.texts) this.word(context, plane.texts[r][c], value, x, y, gap);
        else if (numbered) context.fillText(this.digits(value, places), middle[0], middle[1] + 0.5);
        else if (value < 0 && scale.signed && Math.min(cw, ch) >= 14)
          context.fillRect(middle[0] - cw * 0.16, middle[1] - 0.5, cw * 0.32, 1);
      }
    }
  }

  /** A number with fewer decimals where it would be too long for its cell. */
  digits(value, places) {
    const room = Math.floor((this.cw - 3) / this.digitWidth);
    let text = cell(value, places);
    for (let fewer = places - 1; fewer >= 0 && text.length > room; fewer--) text = cell(value, fewer);
    return text.length > room ? "…" : text;
  }

  word(context, label, value, x, y, gap) {
    const { cw, ch } = this;
    const digits = cell(value, 2);
    const number = digits.length <= 4 ? digits : short(value, 4);
    const side = Math.max(4, cw * 0.05);
    const width = context.measureText(number).width;
    context.textAlign = "right";
    context.globalAlpha = 0.75;
    context.fillText(number, x + cw - gap - side, y + ch / 2 + 0.5);
    context.globalAlpha = 1;
    context.textAlign = "left";
    context.fillText(fitted(context, label, cw - gap - width - side * 2.4), x + side, y + ch / 2 + 0.5);
  }

  /** The cross at the cursor, and the cell below the pointer. */
  marks(context, left, top) {
    const { plane } = this.now;
    const { cw, ch, cell: here } = this;
    const [row, col] = here;
    const width = plane.cols * cw;
    const height = plane.rows * ch;
    context.strokeStyle = ink("cursor");
    context.globalAlpha = 0.42;
    context.lineWidth = 1;
    context.strokeRect(left - 0.5, top + row * ch - 1, width, ch + 0.5);
    context.strokeRect(left + col * cw - 1, top - 0.5, cw + 0.5, height);
    context.globalAlpha = 1;
    context.lineWidth = Math.min(cw, ch) > 9 ? 2.5 : 2;
    const grow = Math.min(cw, ch) > 9 ? 0 : 2;
    context.strokeRect(left + col * cw - 1 - grow, top + row * ch - 1 - grow, cw + 0.5 + 2 * grow, ch + 0.5 + 2 * grow);
    if (this.over) {
      context.lineWidth = 1.2;
      context.setLineDash([3, 2]);
      context.strokeRect(left + this.over[1] * cw - 0.5, top + this.over[0] * ch - 0.5, cw - 0.5, ch - 0.5);
      context.setLineDash([]);
    }
  }

  labels(context, seen, r0, r1, c0, c1, left, top) {
    const { plane, fonts } = this.now;
    const { gutter, head, cw, ch, cell: here } = this;
    const unit = rem();
    const [plain, strong] = [ink("muted"), ink("ink")];
    context.fillStyle = ink("faint");
    context.font = fonts.axis;
    context.textAlign = "right";
    context.textBaseline = "alphabetic";
    context.fillText(`${plane.view.rows} ↓`, gutter - unit * 0.45, head - unit * 0.42);

    context.save();
    context.beginPath();
    context.rect(0, head - 1, gutter, seen.height);
    context.clip();
    context.textBaseline = "middle";
    const every = Math.max(1, Math.ceil((unit * 0.86) / ch));
    for (let r = r0; r < r1; r++) {
      const on = r === here[0];
      if (!on && (r % every || (every > 1 && Math.abs(r - here[0]) < every))) continue;
      context.font = on ? fonts.strong : fonts.label;
      context.fillStyle = on ? strong : plain;
      context.fillText(
        fitted(context, this.rowLabels[r], gutter - unit * 0.6),
        gutter - unit * 0.45,
        top + r * ch + ch / 2,
      );
    }
    context.restore();

    context.save();
    context.beginPath();
    context.rect(gutter - 1, 0, seen.width, head);
    context.clip();
    const named = this.slanted && cw >= unit * 0.9;
    const widest = this.slanted ? unit * 1.6 : widthOf("0".repeat(String(plane.cols).length), fonts.label) + 6;
    const words = TOKEN_AXES.includes(plane.view.cols) || plane.view.cols === DEPTH;
    const step =
      named || (words && !this.slanted)
        ? 1
        : ([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000].find((n) => n * cw >= widest) ?? 10000);
    for (let c = c0; c < c1; c++) {
      const on = c === here[1];
      if (!on && c % step) continue;
      if (!on && step > 1 && Math.abs(c - here[1]) * cw < widest) continue;
      context.font = on ? fonts.strong : fonts.label;
      context.fillStyle = on ? strong : plain;
      const x = left + c * cw + cw / 2;
      if (named) {
        context.save();
        context.translate(x + unit * 0.15, head - unit * 0.4);
        context.rotate(-Math.PI / 3.3);
        context.textAlign = "left";
        context.textBaseline = "middle";
        context.fillText(fitted(context, this.colLabels[c], unit * 6.2), 0, 0);
        context.restore();
      } else {
        const text = this.slanted && !on ? String(plane.place(plane.view.cols, c)) : this.colLabels[c];
        const half = context.measureText(text).width / 2;
        context.textAlign = "center";
        context.textBaseline = "alphabetic";
        context.fillText(text, clamp(x, gutter + half, Math.max(gutter + half, seen.width - half)), head - unit * 0.45);
      }
    }
    context.restore();
  }

  at(x, y) {
    const { plane } = this.now;
    const { gutter, head, cw, ch, surface } = this;
    const row = y >= head ? Math.floor((y - head + surface.node.scrollTop) / ch) : null;
    const col = x >= gutter ? Math.floor((x - gutter + surface.node.scrollLeft) / cw) : null;
    return [
      row !== null && row < plane.rows && y >= 0 ? row : null,
      col !== null && col < plane.cols && x >= 0 ? col : null,
    ];
  }

  pick(x, y) {
    const [row, col] = this.at(x, y);
    if (row !== null || col !== null) this.picture.pick(row, col);
  }

  hover(x, y) {
    const [row, col] = x < 0 ? [null, null] : this.at(x, y);
    const over = row === null || col === null ? null : [row, col];
    if (String(over) === String(this.over)) return;
    this.over = over;
    this.surface.paint();
    this.picture.hover(over);
  }

  get legend() {
    return this.scale.whole ? null : this.scale;
  }
}
