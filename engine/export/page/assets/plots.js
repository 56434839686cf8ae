// One vector as bars, dims as curves along the text, and how the numbers of a plane are spread.

class Plot extends Drawn {
  get legend() {
    return null;
  }

  pick() {}

  /** The frame of a plot: where zero is, the ends of the axis and their names. */
  frame(context, low, high, left, top, width, height) {
    const y = (value) => top + height - ((value - low) / (high - low || 1)) * height;
    context.strokeStyle = ink("rule");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(left, Math.round(y(0)) + 0.5);
    context.lineTo(left + width, Math.round(y(0)) + 0.5);
    context.stroke();
    context.fillStyle = ink("faint");
    context.font = this.now.fonts.label;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const value of new Set([low, 0, high])) context.fillText(short(value, 6), left - 8, y(value));
    return y;
  }
}

/** A vector: of few or named elements lines with a label, a number and a bar, else a profile from left to right. */
class Bars extends Plot {
  show(now) {
    this.now = now;
    const { plane, room, theme, cursor, fonts } = now;
    const unit = rem();
    const axis = plane.view.rows;
    this.listed = TOKEN_AXES.includes(axis) || plane.rows <= 32;
    this.cell = plane.cellOf(cursor)[0];
    this.scale = new Scale(plane.stats, Boolean(plane.trace.tensors[plane.step.site].weights), theme, plane.step.whole);
    this.most = Math.max(Math.abs(plane.stats.low), Math.abs(plane.stats.high)) || 1;
    if (this.listed) {
      this.pitch = clamp((room.height - unit) / plane.rows, unit * 1.25, unit * 1.9);
      const widest = Array.from({ length: Math.min(plane.rows, 500) }, (_, n) =>
        widthOf(plane.label(axis, n), fonts.strong),
      );
      this.label = Math.min(widest.reduce((a, b) => Math.max(a, b), unit * 2) + unit * 0.8, room.width * 0.35);
      this.number = widthOf("-0.000000", fonts.label) + unit;
      this.surface.layout(room.width, plane.rows * this.pitch + 2, room.height, room.width);
      this.surface.show(0, this.cell * this.pitch, 1, this.pitch, 0, this.pitch * 2);
    } else {
      this.left = widthOf("-0.000", fonts.label) + unit;
      this.each = Math.max((room.width - this.left - 4) / plane.rows, plane.rows > 4096 ? 0.25 : 2);
      this.surface.layout(
        this.left + plane.rows * this.each + 2,
        Math.min(room.height, unit * 22),
        room.height,
        room.width,
      );
      this.surface.show(this.left + this.cell * this.each, 0, this.each + 8, 1, this.left + 8, 0);
    }
    this.surface.paint();
  }

  draw(context, seen) {
    if (this.listed) this.list(context, seen);
    else this.profile(context, seen);
  }

  list(context, seen) {
    const { plane, fonts } = this.now;
    const unit = rem();
    const { label, number, pitch, scale, most, cell: here } = this;
    const from = label + number;
    const room = seen.width - from - unit * 0.5;
    const zero = plane.stats.signed ? from + room / 2 : from;
    const half = plane.stats.signed ? room / 2 : room;
    const [first, last] = [Math.floor(seen.y / pitch), Math.min(plane.rows, Math.ceil((seen.y + seen.height) / pitch))];
    context.textBaseline = "middle";
    for (let n = first; n < last; n++) {
      const value = plane.value(n, 0);
      const y = (n + 0.5) * pitch - seen.y;
      const on = n === here;
      const masked = plane.masked(n, 0);
      if (on) {
        context.fillStyle = ink("mark");
        context.fillRect(0, y - pitch / 2 + 1, seen.width, pitch - 2);
      }
      context.font = on ? fonts.strong : fonts.label;
      context.fillStyle = masked ? ink("faint") : on ? ink("ink") : ink("muted");
      context.textAlign = "right";
      context.fillText(fitted(context, plane.label(plane.view.rows, n), label - unit * 0.6), label - unit * 0.3, y);
      context.fillStyle = !masked && special(value) ? ink("error") : masked ? ink("faint") : ink("ink");
      context.fillText(masked ? "masked" : exact(value, plane.step.whole), from - unit * 0.5, y);
      if (masked || !Number.isFinite(value) || plane.step.whole) continue;
      const length = (Math.abs(value) / most) * half;
      context.fillStyle = scale.stroke(value);
      context.fillRect(value < 0 ? zero - length : zero, y - pitch * 0.26, Math.max(1, length), pitch * 0.52);
    }
    if (plane.stats.signed) {
      context.fillStyle = ink("rule");
      context.fillRect(zero - 0.5, 0, 1, seen.height);
    }
  }

  profile(context, seen) {
    const { plane } = this.now;
    const unit = rem();
    const { left, each, scale, cell: here } = this;
    const [top, height] = [unit * 0.8, seen.height - unit * 2.8];
    const [low, high] = [Math.min(0, plane.stats.low), Math.max(0, plane.stats.high)];
    context.save();
    context.beginPath();
    context.rect(left, 0, seen.width, seen.height);
    context.clip();
    const y = (value) => top + height - ((value - low) / (high - low || 1)) * height;
    const first = Math.max(0, Math.floor(seen.x / each));
    const last = Math.min(plane.rows, Math.ceil((seen.x + seen.width) / each));
    const at = (n) => left + n * each - seen.x;
    context.fillStyle = ink("mark");
    context.fillRect(at(here) - Math.max(2, each), 0, Math.max(each, 2) + 2 * Math.max(2, each), top + height + unit);
    for (let n = first; n < last; n++) {
      const value = plane.value(n, 0);
      if (!Number.isFinite(value)) {
        context.fillStyle = ink("error");
        context.fillRect(at(n), top, Math.max(each, 1), height);
        continue;
      }
      context.fillStyle = n === here ? ink("ink") : scale.stroke(value);
      const [a, b] = [y(0), y(value)];
      context.fillRect(
        at(n),
        Math.min(a, b),
        Math.max(0.6, each - (each > 4 ? 1 : 0)),
        Math.max(0.75, Math.abs(a - b)),
      );
    }
    context.fillStyle = ink("faint");
    context.font = this.now.fonts.label;
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10000].find((n) => n * each >= unit * 3.4) ?? 50000;
    for (let n = Math.ceil(first / every) * every; n < last; n += every)
      context.fillText(n, at(n) + each / 2, seen.height - unit * 0.5);
    context.restore();
    this.frame(context, low, high, left, top, seen.width - left, height);
  }

  pick(x, y) {
    const { plane } = this.now;
    const { scrollLeft, scrollTop } = this.surface.node;
    const n = Math.floor(this.listed ? (y + scrollTop) / this.pitch : (x - this.left + scrollLeft) / this.each);
    if (n >= 0 && n < plane.rows) this.picture.pick(n, null);
  }
}

/** Dims along the text: the cursor's as a thick line, some others, from the first to the middle one, thin and dashed. */
class Curves extends Plot {
  show(now) {
    this.now = now;
    const { plane, room, cursor, fonts } = now;
    const unit = rem();
    this.cell = plane.cellOf(cursor);
    const most = room.width > unit * 30 ? 4 : 2;
    const spread = Array.from({ length: most + 1 }, (_, n) => Math.round((n * plane.cols) / 2 / most));
    this.dims = [
      this.cell[1],
      ...[...new Set(spread)].filter((dim) => dim !== this.cell[1] && dim < plane.cols).slice(0, most),
    ];
    this.left = widthOf("-0.000", fonts.label) + unit;
    this.surface.layout(room.width, Math.min(room.height, unit * 24), room.height, room.width);
    this.surface.paint();
  }

  draw(context, seen) {
    const { plane, fonts } = this.now;
    const unit = rem();
    const { left, dims } = this;
    const [row] = this.cell;
    const [top, width, height] = [unit * 2, seen.width - left - unit, seen.height - unit * 4.2];
    const known = dims
      .flatMap((dim) => Array.from({ length: plane.rows }, (_, r) => plane.value(r, dim)))
      .filter(Number.isFinite);
    const [low, high] = [known.reduce((a, b) => Math.min(a, b), 0), known.reduce((a, b) => Math.max(a, b), 0)];
    const y = this.frame(context, low, high, left, top, width, height);
    const x = (r) => left + (r * width) / Math.max(1, plane.rows - 1);
    context.strokeStyle = ink("rule");
    context.strokeRect(x(row), top, 0.5, height);
    const colours = [ink("accent"), ink("link"), ink("good"), ink("muted"), ink("faint")];
    const dashes = [[], [7, 4], [2, 3], [12, 6], [2, 7]];
    let legend = left;
    dims
      .map((dim, n) => [dim, n])
      .reverse()
      .forEach(([dim, n]) => {
        context.strokeStyle = colours[n];
        context.lineWidth = n ? 1.4 : 3;
        context.setLineDash(dashes[n]);
        context.beginPath();
        for (let r = 0; r < plane.rows; r++) context[r ? "lineTo" : "moveTo"](x(r), y(plane.value(r, dim)));
        context.stroke();
        context.setLineDash([]);
        context.fillStyle = colours[n];
        context.beginPath();
        context.arc(x(row), y(plane.value(row, dim)), n ? 3 : 5, 0, 7);
        context.fill();
      });
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (const [n, dim] of dims.entries()) {
      context.font = n ? fonts.label : fonts.strong;
      context.fillStyle = colours[n];
      const words = `dim ${dim}  ${short(plane.value(row, dim))}`;
      if (legend + widthOf(words, fonts.strong) > seen.width) break;
      context.fillText(words, legend, unit * 0.8);
      legend += widthOf(words, fonts.strong) + unit * 1.4;
    }
    context.font = fonts.label;
    context.fillStyle = ink("ink");
    context.textBaseline = "alphabetic";
    const words = `${plane.label(plane.view.rows, row)} (${plane.place(plane.view.rows, row)})`;
    const half = context.measureText(words).width / 2;
    context.textAlign = "center";
    context.fillText(words, clamp(x(row), half, seen.width - half), seen.height - unit * 0.7);
  }

  pick(px) {
    const { plane } = this.now;
    const width = this.surface.viewWidth - this.left - rem();
    const row = Math.round(((px - this.left) / width) * (plane.rows - 1));
    this.picture.pick(clamp(row, 0, plane.rows - 1), null);
  }
}

const BINS = 40;

/** How many of the finite numbers lie in each bin, and three quantiles (engine/analysis/histogram.py). */
function histogramOf(plane) {
  const known = Float64Array.from(plane.values.filter((x, i) => Number.isFinite(x) && !plane.isMasked(i, x))).sort();
  if (!known.length) return { counts: [], edges: [], quantiles: [] };
  let [low, high] = [known[0], known.at(-1)];
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const width = (high - low) / BINS; // as torch.linspace: from both ends to the middle
  const edges = Array.from({ length: BINS + 1 }, (_, n) =>
    n < (BINS + 1) / 2 ? low + width * n : high - width * (BINS - n),
  );
  const counts = Array(BINS).fill(0);
  let bin = 0;
  for (const x of known) {
    while (bin < BINS - 1 && x >= edges[bin + 1]) bin++;
    counts[bin]++;
  }
  const quantiles = [0.01, 0.5, 0.99].map((q) => {
    const place = q * (known.length - 1);
    const first = known[Math.floor(place)];
    return first + (known[Math.ceil(place)] - first) * (place - Math.floor(place));
  });
  return { counts, edges, quantiles };
}

class Histogram extends Plot {
  show(now) {
    this.now = now;
    const { plane, room, fonts, cursor } = now;
    const unit = rem();
    if (this.of !== plane) [this.of, this.found] = [plane, histogramOf(plane)];
    this.cell = plane.cellOf(cursor);
    this.left = widthOf("000000", fonts.label) + unit;
    this.surface.layout(room.width, Math.min(room.height, unit * 24), room.height, room.width);
    this.surface.paint();
  }

  draw(context, seen) {
    const { plane, fonts, theme } = this.now;
    const unit = rem();
    const { counts, edges, quantiles } = this.found;
    context.textBaseline = "alphabetic";
    context.font = fonts.label;
    context.fillStyle = ink("muted");
    if (!counts.length) {
      context.fillText("no finite number", unit, unit * 2);
      return;
    }
    const { left } = this;
    const [top, width, height] = [unit * 1.6, seen.width - left - unit, seen.height - unit * 4.6];
    const most = Math.max(...counts);
    const x = (value) => left + ((value - edges[0]) / (edges.at(-1) - edges[0])) * width;
    const scale = new Scale(plane.stats, plane.warm, theme, plane.step.whole);
    this.frame(context, 0, most, left, top, width, height);
    counts.forEach((number, n) => {
      const tall = (number / most) * height;
      context.fillStyle = scale.stroke((edges[n] + edges[n + 1]) / 2);
      context.fillRect(x(edges[n]), top + height - tall, width / BINS - 1, number ? Math.max(1, tall) : 0);
    });
    context.textBaseline = "alphabetic";
    context.font = fonts.small;
    const marks = [
      ["1%", quantiles[0]],
      ["median", quantiles[1]],
      ["99%", quantiles[2]],
    ];
    let used = -Infinity;
    for (const [name, value] of marks) {
      context.fillStyle = ink("faint");
      context.fillRect(x(value), top, 1, height + 4);
      const words = `${name} ${short(value)}`;
      const half = context.measureText(words).width / 2;
      const at = Math.max(clamp(x(value), left + half, seen.width - half), used + half + 8);
      context.textAlign = "center";
      context.fillStyle = ink("muted");
      context.fillText(words, at, top + height + unit * 1.3);
      used = at + half;
    }
    const value = plane.value(...this.cell);
    if (Number.isFinite(value)) {
      context.fillStyle = ink("accent");
      context.fillRect(x(value) - 1, top - 4, 2.5, height + 4);
      context.textAlign = "center";
      context.font = fonts.strong;
      const words = `this cell ${exact(value, plane.step.whole)}`;
      const half = context.measureText(words).width / 2;
      context.fillText(words, clamp(x(value), left + half, seen.width - half), top - unit * 0.5);
    }
    context.fillStyle = ink("faint");
    context.font = fonts.label;
    context.textAlign = "left";
    context.fillText(short(edges[0]), left, top + height + unit * 2.6);
    context.textAlign = "right";
    context.fillText(short(edges.at(-1)), left + width, top + height + unit * 2.6);
  }
}
