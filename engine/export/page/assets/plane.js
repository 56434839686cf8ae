// One picture's numbers: a plane of rows × columns of a site, its labels, what its cells mean, and its statistics.

const DEPTH = "depth";

/** What is told of many numbers at once (engine/statistics.py): of the finite ones, in two passes. */
function statisticsOf(values, masked) {
  let [low, high, sum, squares, finite, hidden] = [Infinity, -Infinity, 0, 0, 0, 0];
  for (let i = 0; i < values.length; i++) {
    const x = values[i];
    if (masked(i, x)) hidden++;
    else if (Number.isFinite(x)) {
      if (x < low) low = x;
      if (x > high) high = x;
      sum += x;
      squares += x * x;
      finite++;
    }
  }
  const mean = finite ? sum / finite : 0;
  let spread = 0;
  for (let i = 0; i < values.length; i++) {
    const x = values[i];
    if (Number.isFinite(x) && !masked(i, x)) spread += (x - mean) ** 2;
  }
  if (!finite) [low, high] = [0, 0];
  const std = finite ? Math.sqrt(spread / finite) : 0;
  return {
    low,
    high,
    mean,
    std,
    norm: Math.sqrt(squares),
    masked: hidden,
    count: finite,
    nonfinite: values.length - finite - hidden,
    signed: low < 0,
    limit: limitOf(low, high, mean, std),
  };
}

/** Where a scale ends: the largest magnitude, or four times the root mean square if that is smaller. */
function limitOf(low, high, mean, std) {
  const most = Math.max(Math.abs(low), Math.abs(high));
  const usual = 4 * Math.sqrt(mean ** 2 + std ** 2);
  if (low >= 0 && high <= 1) return most;
  return usual > 0 && usual < most ? usual : most;
}

class Plane {
  /** The picture of a view at the cursor; found again where it was made before. */
  static of(trace, cursor, view) {
    const step = trace.step(cursor.step, cursor.at);
    const fixed = Object.fromEntries(view.fixed.map((axis) => [axis, indexOf(trace, cursor, axis)]));
    const site = view.kind === "grid" ? "" : step.site;
    const key = JSON.stringify([
      site,
      view.name,
      view.kind === "grid" ? [fixed.batch, trace.grid(view.look, step, fixed.batch ?? 0)?.cols.sites[0]] : fixed,
      cursor.at,
    ]);
    return trace.planes.get(key, () => new Plane(trace, step, view, fixed, cursor.at));
  }

  constructor(trace, step, view, fixed, at) {
    Object.assign(this, { trace, step, view, fixed, at, batch: fixed.batch ?? 0, depth: [], texts: null });
    if (view.kind === "grid") this.readGrid();
    else this.readTensor();
    this.stats = statisticsOf(this.values, (i, x) => this.isMasked(i, x));
    const probabilities = this.texts && !this.stats.signed && this.stats.high <= 1;
    this.weight = Boolean(trace.tensors[step.site]?.weights) && !this.stats.signed && !view.look;
    this.warm = this.weight || probabilities;
  }

  readGrid() {
    const told = this.trace.grid(this.view.look, this.step, this.batch);
    const [, cols] = told.shape;
    const axis = this.view.rows;
    const first = firstOf(this.step, axis);
    const all = this.trace.blocks.read(told.block, "float32", 0, told.shape[0] * cols);
    const from = first - told.rows.start;
    [this.rows, this.cols, this.depth] = [sizeOf(this.step, axis), cols, told.cols.sites];
    this.values = all.subarray(from * cols, (from + this.rows) * cols);
    this.texts = told.texts?.slice(from, from + this.rows) ?? null;
    this.told = told;
  }

  readTensor() {
    const { trace, step, view } = this;
    const along = (axis) =>
      axis ? (trace.present(step.site, axis) ?? Array.from({ length: sizeOf(step, axis) }, (_, i) => i)) : [0];
    [this.rowIndex, this.colIndex] = [along(view.rows), along(view.cols)];
    [this.rows, this.cols] = [this.rowIndex.length, this.colIndex.length];
    if (!view.over) this.values = this.cut(this.fixed);
    else {
      const heads = Array.from({ length: sizeOf(step, "head") }, (_, head) => this.cut({ ...this.fixed, head }));
      this.values = Float32Array.from(heads[0], (_, i) => {
        let found = heads[0][i];
        for (let h = 1; h < heads.length; h++) {
          const x = heads[h][i];
          found = view.over === "mean" ? found + x : Number.isNaN(x) || x > found ? x : found;
        }
        return view.over === "mean" ? found / heads.length : found;
      });
    }
    const { hidden, masks, weights } = trace.tensors[step.site];
    if (hidden) this.hidden = this.hiddenCells(hidden);
    this.sinks = masks && !weights;
  }

  /** Rows × columns of the tensor with all other axes fixed. */
  cut(fixed) {
    const { trace, step, view, rows, cols } = this;
    const { numbers, axes, shape } = trace.slab(step.site, this.shifted(fixed));
    const strides = shape.map((_, n) => shape.slice(n + 1).reduce((a, b) => a * b, 1));
    const strideOf = (axis) => strides[axes.indexOf(axis)] ?? 0;
    let start = firstOf(step, view.rows) * strideOf(view.rows) + firstOf(step, view.cols) * strideOf(view.cols);
    axes.forEach((axis, n) => {
      if (axis !== view.rows && axis !== view.cols)
        start += trace.stored(step.site, axis, this.shifted(fixed)[axis] ?? 0) * strides[n];
    });
    const [down, across] = [strideOf(view.rows), strideOf(view.cols)];
    if (across === 1 && (down === cols || rows === 1)) return numbers.subarray(start, start + rows * cols);
    if (!view.cols && down === 1) return numbers.subarray(start, start + rows);
    const found = new numbers.constructor(rows * cols);
    for (let r = 0, n = 0; r < rows; r++)
      for (let c = 0; c < cols; c++) found[n++] = numbers[start + r * down + c * across];
    return found;
  }

  /** Indices in the page's tensor, which holds all passes together. */
  shifted(fixed) {
    return Object.fromEntries(Object.entries(fixed).map(([axis, i]) => [axis, i + firstOf(this.step, axis)]));
  }

  /** Which cells the mask of the program hides. */
  hiddenCells(block) {
    const { trace, step, view, rows, cols, fixed } = this;
    const axes = trace.tensors[step.site].axes;
    const [queries, keys] = trace.tensors[step.site].shape.slice(-2);
    const first = this.batch * queries * keys;
    const from = Math.floor(first / 8);
    const bytes = trace.blocks.bits(block, from, Math.ceil((first + queries * keys) / 8));
    const [query, key] = axes.slice(-2);
    const at = (axis, r, c) =>
      firstOf(step, axis) + (axis === view.rows ? r : axis === view.cols ? c : (fixed[axis] ?? 0));
    const found = new Uint8Array(rows * cols);
    for (let r = 0, n = 0; r < rows; r++) {
      for (let c = 0; c < cols; c++, n++) {
        const bit = first + at(query, r, c) * keys + at(key, r, c);
        found[n] = (bytes[(bit >> 3) - from] >> (7 - (bit & 7))) & 1;
      }
    }
    return found;
  }

  /** Whether a cell is masked: a weight of 0 where the mask lets none be, −∞ among masked scores. */
  isMasked(i, value) {
    return this.hidden ? this.hidden[i] === 1 && value === 0 : this.sinks === true && value === -Infinity;
  }

  value(row, col) {
    return this.values[row * this.cols + col];
  }

  masked(row, col) {
    return this.isMasked(row * this.cols + col, this.value(row, col));
  }

  /** What a row or column is called: its token or its site where the axis runs over those, else its number. */
  label(axis, n) {
    if (axis === DEPTH) return depthName(this.depth[n]);
    if (!TOKEN_AXES.includes(axis)) return String((axis === this.view.cols ? this.colIndex : this.rowIndex)?.[n] ?? n);
    return this.trace.label(this.batch, firstOf(this.step, axis) + n, axis);
  }

  /** The number that is shown beside a label: of a token its place in the text. */
  place(axis, n) {
    return axis === DEPTH
      ? n
      : firstOf(this.step, axis) + Number(((axis === this.view.cols ? this.colIndex : this.rowIndex) ?? [])[n] ?? n);
  }

  /** A value in words. */
  words(row, col) {
    const value = this.value(row, col);
    if (value === undefined) return "";
    if (this.masked(row, col)) return value === 0 ? "0 (masked)" : "-∞ (masked)";
    return exact(value, this.step.whole);
  }

  /** The cursor's row and column. */
  cellOf(cursor) {
    const { trace, view } = this;
    const on = (axis, index) =>
      axis ? Math.max(0, index ? index.indexOf(indexOf(trace, cursor, axis)) : indexOf(trace, cursor, axis)) : 0;
    if (view.cols !== DEPTH) return [on(view.rows, this.rowIndex), on(view.cols, this.colIndex)];
    const deep = this.depth.map((site) => trace.bySite.get(site)?.index ?? Infinity);
    return [
      on(view.rows),
      Math.max(
        0,
        deep.findLastIndex((index) => index <= cursor.step),
      ),
    ];
  }

  /** The cursor on a cell. */
  cursorAt(cursor, row, col) {
    const { trace, view } = this;
    let moved = cursor;
    if (view.cols === DEPTH && col !== null)
      moved = { ...moved, step: trace.bySite.get(this.depth[col])?.index ?? moved.step };
    if (row !== null && view.rows) moved = putIndex(trace, moved, view.rows, this.rowIndex?.[row] ?? row);
    if (col !== null && view.cols && view.cols !== DEPTH)
      moved = putIndex(trace, moved, view.cols, this.colIndex?.[col] ?? col);
    return moved;
  }

  /** Where the cursor is on the axes of the picture: axis, label, place. */
  spot(row, col) {
    const { view } = this;
    return [
      [view.rows, row],
      [view.cols, col],
    ]
      .filter(([axis]) => axis)
      .map(([axis, n]) => [axis, this.label(axis, n), this.place(axis, n)]);
  }
}

/** "2.mid" of blocks.2.resid_mid, "2.mlp" of blocks.2.mlp_out. */
function depthName(site = "") {
  const parts = site.replace(/^encoder\./, "").split(".");
  const short = parts
    .at(-1)
    .replace(/^resid_/, "")
    .replace(/_out$/, "");
  return parts[0] === "blocks" && parts.length > 2 ? `${parts[1]}.${short}` : short;
}
