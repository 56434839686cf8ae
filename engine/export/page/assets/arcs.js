// A pattern as arcs from the cursor's query, at the left, to the keys that it reads, at the right: thick is much, and
// the weight stands beside each key.

const QUIET = 0.004; // a weight below this share has no arc

function weightWords(value) {
  const name = special(value);
  if (name) return name;
  return Math.abs(value) >= 5e-4 || value === 0 ? cell(value, 3) : value > 0 ? "<.001" : ">-.001";
}

class Arcs extends Drawn {
  show(now) {
    this.now = now;
    const { plane, cursor, room, fonts, theme } = now;
    const unit = rem();
    this.cell = plane.cellOf(cursor);
    this.shift = Math.max(0, firstOf(plane.step, plane.view.rows) - firstOf(plane.step, plane.view.cols));
    this.lines = Math.max(plane.rows + this.shift, plane.cols);
    this.pitch = clamp((room.height - unit * 2) / this.lines, unit * 1.15, unit * 2.3);
    this.head = unit * 1.9;
    const longest = (axis, total) =>
      Array.from({ length: Math.min(total, 400) }, (_, n) => widthOf(plane.label(axis, n), fonts.strong)).reduce(
        (a, b) => Math.max(a, b),
        unit * 2,
      );
    const most = room.width * 0.24;
    this.query = Math.min(longest(plane.view.rows, plane.rows), most) + unit * 0.8;
    this.key = Math.min(longest(plane.view.cols, plane.cols), most) + unit * 0.8;
    this.number = widthOf("0.000", fonts.label) + unit * 0.6;
    const rest = room.width - this.query - this.key - this.number;
    this.bar = rest > unit * 16 ? Math.min(unit * 10, rest * 0.3) : 0;
    this.arcs = Math.min(rest - this.bar - unit, unit * 26);
    const row = Array.from({ length: plane.cols }, (_, c) => plane.value(this.cell[0], c));
    this.row = row;
    this.most = row.reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 0) || 1;
    this.best = row.reduce((best, x, c) => (Number.isFinite(x) && x && (best < 0 || x > row[best]) ? c : best), -1);
    this.scale = new Scale(plane.stats, plane.warm, theme, false, this.most);
    this.surface.layout(
      this.query + this.arcs + this.key + this.number + this.bar,
      this.head + this.lines * this.pitch,
      room.height,
      room.width,
    );
    this.surface.show(
      0,
      this.head + (this.cell[0] + this.shift) * this.pitch,
      1,
      this.pitch,
      0,
      this.head + this.pitch * 3,
    );
    this.surface.paint();
  }

  yOf(line) {
    return this.head + (line + 0.5) * this.pitch;
  }

  draw(context, seen) {
    const { plane, fonts } = this.now;
    const unit = rem();
    const [row, col] = this.cell;
    const { query, arcs, key, number, bar, shift, scale, most, best } = this;
    const [from, to] = [query + 4, query + arcs - 4];
    const colours = { faint: ink("faint"), muted: ink("muted"), ink: ink("ink"), rule: ink("rule"), mark: ink("mark") };
    context.save();
    context.translate(0, -seen.y);
    const join = (start, end) => {
      context.beginPath();
      context.moveTo(from, start);
      context.bezierCurveTo(from + (to - from) * 0.5, start, from + (to - from) * 0.5, end, to, end);
      context.stroke();
    };
    context.strokeStyle = colours.rule;
    context.lineWidth = 1;
    for (let r = 0; r < plane.rows; r++) {
      let [strongest, at] = [0, -1];
      for (let c = 0; c < plane.cols; c++) if (plane.value(r, c) > strongest) [strongest, at] = [plane.value(r, c), c];
      if (at >= 0 && r !== row) join(this.yOf(r + shift), this.yOf(at));
    }
    const start = this.yOf(row + shift);
    const order = this.row.map((_, c) => c).sort((a, b) => Math.abs(this.row[a]) - Math.abs(this.row[b]));
    for (const c of order) {
      const value = this.row[c];
      const part = Math.abs(value) / (plane.warm ? 1 : most);
      if (!Number.isFinite(value) || part < QUIET) continue;
      context.strokeStyle = scale.stroke(value);
      context.lineWidth = Math.max(0.8, part * unit * 0.75);
      join(start, this.yOf(c));
    }
    context.textBaseline = "middle";
    for (let r = 0; r < plane.rows; r++) {
      const on = r === row;
      context.textAlign = "right";
      context.font = on ? fonts.strong : fonts.label;
      context.fillStyle = on ? colours.ink : colours.muted;
      context.fillText(
        fitted(context, plane.label(plane.view.rows, r), query - unit * 0.7),
        query - unit * 0.55,
        this.yOf(r + shift),
      );
      context.beginPath();
      context.arc(from - 4, this.yOf(r + shift), on ? 4 : 2, 0, 7);
      context.fill();
    }
    context.textAlign = "left";
    for (let c = 0; c < plane.cols; c++) {
      const value = this.row[c];
      const y = this.yOf(c);
      const masked = plane.masked(row, c);
      const quiet = masked || Math.abs(value) < 0.05;
      if (c === col) {
        context.fillStyle = colours.mark;
        context.fillRect(query + arcs, y - this.pitch / 2, key + number, this.pitch - 1);
      }
      context.fillStyle = masked ? colours.faint : c === best ? colours.ink : quiet ? colours.muted : colours.ink;
      context.font = c === best || c === col ? fonts.strong : fonts.label;
      context.fillText(
        fitted(context, plane.label(plane.view.cols, c), key - unit * 0.8),
        query + arcs + unit * 0.4,
        y,
      );
      context.textAlign = "right";
      context.fillText(masked ? "·" : weightWords(value), query + arcs + key + number - unit * 0.4, y);
      context.textAlign = "left";
      if (bar && Number.isFinite(value) && !masked) {
        context.fillStyle = scale.stroke(value);
        context.fillRect(
          query + arcs + key + number + 2,
          y - this.pitch * 0.24,
          Math.max(1, (Math.abs(value) / most) * (bar - 8)),
          this.pitch * 0.48,
        );
      }
    }
    context.restore();
    context.fillStyle = ink("paper");
    context.fillRect(0, 0, seen.width, this.head - unit * 0.3);
    context.fillStyle = colours.faint;
    context.font = fonts.axis;
    context.textBaseline = "alphabetic";
    context.textAlign = "right";
    context.fillText(plane.view.rows, query - unit * 0.55, unit * 1.1);
    context.textAlign = "left";
    context.fillText(plane.view.cols, query + arcs + unit * 0.4, unit * 1.1);
    if (best >= 0 && arcs > unit * 12) {
      context.textAlign = "center";
      context.fillStyle = colours.muted;
      const words = `${plane.label(plane.view.rows, row)} reads ${plane.label(plane.view.cols, best)} ${weightWords(this.row[best])}`;
      context.fillText(fitted(context, words, arcs - unit), query + arcs / 2, unit * 1.1);
    }
  }

  pick(x, y) {
    if (y < this.head) return;
    const line = Math.floor((y - this.head + this.surface.node.scrollTop) / this.pitch);
    const { plane } = this.now;
    if (x < this.query + this.arcs / 2) {
      const row = line - this.shift;
      if (row >= 0 && row < plane.rows) this.picture.pick(row, null);
    } else if (line >= 0 && line < plane.cols) this.picture.pick(null, line);
  }

  get legend() {
    return null;
  }
}
