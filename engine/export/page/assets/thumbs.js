// All heads of a step, or of all layers, as small pictures side by side; a click opens one.

/** −Σ p log₂ p of each row, the mean over all of them. */
function entropyOf(plane) {
  let bits = 0;
  for (let i = 0; i < plane.values.length; i++) {
    const p = plane.values[i];
    if (p > 0) bits -= p * Math.log2(p);
  }
  return bits / Math.max(1, plane.rows);
}

class Thumbs extends Drawn {
  show(now) {
    this.now = now;
    const { trace, cursor, view, room, step } = now;
    const unit = rem();
    const layered = view.look === "layers";
    const steps = layered
      ? trace.steps.filter(
          (one) =>
            one.inner === step.inner &&
            String(one.axes) === String(step.axes) &&
            one.site.startsWith("encoder.") === step.site.startsWith("encoder.") &&
            trace.has(one.site),
        )
      : [step];
    const key = JSON.stringify([trace.n, steps.map((one) => one.index), cursor.batch, cursor.at]);
    const [rows, cols] = step.axes.slice(-2);
    const batch = indexOf(trace, cursor, "batch");
    if (key !== this.key) {
      this.key = key;
      this.tiles = steps.flatMap((one) => {
        const heads = trace.present(one.site, "head") ?? Array.from({ length: sizeOf(one, "head") }, (_, head) => head);
        const partial = trace.present(one.site, "head") !== null;
        const together = layered || partial ? [] : TOGETHER.map((over) => ({ one, over, title: over }));
        return [
          ...together,
          ...heads.map((head) => ({ one, head, title: layered ? `layer ${one.block} head ${head}` : `head ${head}` })),
        ];
      });
      this.width = layered ? this.tiles.length / steps.length : 0;
    }
    this.planeOf = (tile) => {
      const fixed = tile.over ? ["batch"] : ["batch", "head"];
      const tileView = {
        name: `tile ${tile.over ?? ""}`,
        kind: "attention",
        rows,
        cols,
        look: "",
        over: tile.over ?? "",
        fixed,
      };
      return Plane.of(trace, { ...cursor, batch, step: tile.one.index, head: tile.head ?? cursor.head }, tileView);
    };
    this.here = this.tiles.findIndex(
      (tile) => tile.one.index === cursor.step && tile.head === indexOf(trace, cursor, "head"),
    );
    const columns = this.width || clamp(Math.floor(room.width / (unit * 9.5)), 2, Math.max(2, this.tiles.length));
    this.columns = columns;
    this.pad = unit * (this.width ? 0.55 : 0.9);
    this.side = clamp(room.width / columns - this.pad, unit * 3.4, unit * 13);
    this.title = unit * 1.5;
    const lines = Math.ceil(this.tiles.length / this.columns);
    this.surface.layout(
      this.columns * (this.side + this.pad),
      lines * (this.side + this.title + this.pad * 0.5) + 2,
      room.height * 1.15,
      room.width,
    );
    const [x, y] = this.place(Math.max(0, this.here));
    this.surface.show(x, y, this.side, this.side + this.title, 0, 0);
    this.surface.paint();
  }

  place(n) {
    return [
      (n % this.columns) * (this.side + this.pad),
      Math.floor(n / this.columns) * (this.side + this.title + this.pad * 0.5),
    ];
  }

  /** A picture of a tile: one point a cell, its brightest where many share one. */
  pointsOf(tile) {
    const { theme } = this.now;
    const side = Math.ceil(this.side * Math.max(1, devicePixelRatio || 1));
    const key = `${theme} ${side}`;
    if (tile.drawn === key && tile.at === this.key) return tile.canvas;
    const plane = this.planeOf(tile);
    const scale = new Scale(plane.stats, plane.warm, theme);
    const [height, width] = [Math.min(plane.rows, side), Math.min(plane.cols, side)];
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width, height];
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    const points = new Uint32Array(image.data.buffer);
    const paper = pointOf(rgb(ink("tile").slice(1)));
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        let found;
        for (let r = Math.floor((y * plane.rows) / height); r < Math.ceil(((y + 1) * plane.rows) / height); r++) {
          for (let c = Math.floor((x * plane.cols) / width); c < Math.ceil(((x + 1) * plane.cols) / width); c++) {
            const i = r * plane.cols + c;
            const value = plane.values[i];
            if (
              !plane.isMasked(i, value) &&
              (found === undefined || Number.isNaN(value) || Math.abs(value) > Math.abs(found))
            )
              found = value;
          }
        }
        points[y * width + x] = scale.point(found, found === undefined ? paper : undefined);
      }
    }
    context.putImageData(image, 0, 0);
    Object.assign(tile, {
      canvas,
      drawn: key,
      at: this.key,
      entropy: plane.trace.tensors[tile.one.site].weights && !tile.over ? entropyOf(plane) : null,
    });
    return canvas;
  }

  draw(context, seen) {
    const { fonts } = this.now;
    const unit = rem();
    context.imageSmoothingEnabled = false;
    context.textBaseline = "alphabetic";
    this.tiles.forEach((tile, n) => {
      const [x, y] = this.place(n);
      const [left, top] = [x - seen.x, y - seen.y];
      if (top > seen.height || top + this.side + this.title < 0 || left > seen.width || left + this.side < 0) return;
      const points = this.pointsOf(tile);
      const on = n === this.here;
      context.font = on ? fonts.strong : fonts.label;
      context.fillStyle = on ? ink("ink") : ink("muted");
      context.textAlign = "left";
      const bits = tile.entropy === null || tile.entropy === undefined ? "" : `${fixed(tile.entropy, 2)} bits`;
      const room = this.side - (bits && this.side > unit * 7 ? widthOf(bits, fonts.small) + 6 : 0);
      context.fillText(
        fitted(context, this.width && this.side < unit * 7 ? `${tile.one.block}.${tile.head}` : tile.title, room),
        left,
        top + unit * 1.1,
      );
      if (bits && this.side > unit * 7) {
        context.font = fonts.small;
        context.fillStyle = ink("faint");
        context.textAlign = "right";
        context.fillText(bits, left + this.side, top + unit * 1.1);
      }
      context.drawImage(points, left, top + this.title, this.side, this.side);
      context.strokeStyle = on ? ink("cursor") : ink("rule");
      context.lineWidth = on ? 2.5 : 1;
      context.strokeRect(left + 0.5, top + this.title + 0.5, this.side - 1, this.side - 1);
    });
  }

  pick(x, y) {
    const { scrollLeft, scrollTop } = this.surface.node;
    const column = Math.floor((x + scrollLeft) / (this.side + this.pad));
    const tile =
      this.tiles[Math.floor((y + scrollTop) / (this.side + this.title + this.pad * 0.5)) * this.columns + column];
    if (!tile || column >= this.columns) return;
    const { cursor } = this.now;
    this.picture.choose({ ...cursor, step: tile.one.index, head: tile.head ?? cursor.head }, tile.over ?? "heatmap");
  }

  get legend() {
    return null;
  }
}
