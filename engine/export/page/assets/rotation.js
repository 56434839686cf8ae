// RoPE of one query or key: each pair of dims as a hand on a dial, before and after it was turned.

/** The pairs of dims that a rotary step turns, from the tensors that it reads; null where they are not in the page. */
function pairsOf(trace, step, index) {
  const [before, cosines, sines] = step.reads;
  const style = trace.told.config?.rotary?.style;
  if (![before, cosines, sines].every((site) => trace.has(site))) return null;
  const turned = trace.bySite.get(cosines).shape.at(-1);
  const dims = sizeOf(step, "d_head");
  const [batch, token] = step.axes;
  const place = index[token] + firstOf(step, token);
  const at = (site, d) => {
    const { axes } = trace.bySite.get(site);
    const values = { batch: index[batch], pos: place, src: place, head: index.head, kv_head: index.kv_head };
    return trace.number(site, {
      ...Object.fromEntries(axes.map((axis) => [axis, values[axis] ?? 0])),
      [axes.at(-1)]: d,
    });
  };
  return Array.from({ length: Math.floor(Math.min(turned, dims) / 2) }, (_, i) => {
    const [a, b] = style === "interleaved" ? [2 * i, 2 * i + 1] : [i, i + turned / 2];
    const pair = { pair: i, dims: [a, b], cos: at(cosines, a), sin: at(sines, b) };
    return { ...pair, before: [at(before, a), at(before, b)], after: [at(step.site, a), at(step.site, b)] };
  });
}

class Rotation extends Drawn {
  show(now) {
    this.now = now;
    const { trace, step, index, room, told } = now;
    const unit = rem();
    this.pairs = told?.pairs ?? pairsOf(trace, step, index) ?? [];
    this.most =
      this.pairs.reduce((top, { before, after }) => Math.max(top, Math.hypot(...before), Math.hypot(...after)), 0) || 1;
    this.columns = clamp(Math.floor(room.width / (unit * 9)), 2, 8);
    this.side = Math.min(unit * 12, room.width / this.columns);
    this.tall = this.side + unit * 2.4;
    this.surface.layout(
      this.columns * this.side,
      Math.ceil(this.pairs.length / this.columns) * this.tall,
      room.height,
      room.width,
    );
    this.here = this.pairs.findIndex(({ dims }) => dims.includes(index.d_head));
    this.surface.show(0, Math.floor(Math.max(0, this.here) / this.columns) * this.tall, 1, this.tall, 0, 0);
    this.surface.paint();
  }

  draw(context, seen) {
    const { fonts, theme } = this.now;
    const unit = rem();
    const colours = palette(theme);
    context.textAlign = "center";
    this.pairs.forEach((pair, n) => {
      const x = (n % this.columns) * this.side + this.side / 2 - seen.x;
      const y = Math.floor(n / this.columns) * this.tall + this.side / 2 - seen.y;
      if (y < -this.tall || y > seen.height + this.tall) return;
      const radius = this.side / 2 - unit * 0.7;
      const on = n === this.here;
      context.strokeStyle = on ? ink("cursor") : ink("rule");
      context.lineWidth = on ? 2 : 1;
      context.beginPath();
      context.arc(x, y, radius, 0, 7);
      context.stroke();
      const hand = ([a, b], colour, width, dash) => {
        context.strokeStyle = context.fillStyle = colour;
        context.lineWidth = width;
        context.setLineDash(dash);
        const [tx, ty] = [x + (a / this.most) * radius, y - (b / this.most) * radius];
        context.beginPath();
        context.moveTo(x, y);
        context.lineTo(tx, ty);
        context.stroke();
        context.setLineDash([]);
        context.beginPath();
        context.arc(tx, ty, width + 1, 0, 7);
        context.fill();
      };
      hand(pair.before, colours.down.css[150], 1.6, [4, 3]);
      hand(pair.after, colours.up.css[180], 2.6, []);
      context.font = on ? fonts.strong : fonts.label;
      context.fillStyle = on ? ink("ink") : ink("muted");
      context.textBaseline = "alphabetic";
      const degrees = (Math.atan2(pair.sin, pair.cos) * 180) / Math.PI;
      context.fillText(`dims ${pair.dims.join(", ")}`, x, y + radius + unit * 1.2);
      context.font = fonts.small;
      context.fillStyle = ink("faint");
      context.fillText(`turned ${short(degrees, 5)}°`, x, y + radius + unit * 2.2);
    });
  }

  pick(x, y) {
    const n = Math.floor((y + this.surface.node.scrollTop) / this.tall) * this.columns + Math.floor(x / this.side);
    const pair = this.pairs[n];
    if (pair) this.picture.choose(putIndex(this.now.trace, this.now.cursor, "d_head", pair.dims[0]));
  }

  get legend() {
    return null;
  }
}
