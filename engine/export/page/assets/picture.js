// A figure: the views of a step, one of them drawn, the value at the cursor in words, the scale, and the same numbers
// as a table for those who read or hear it.

const KINDS = {
  attention: Heatmap,
  matrix: Heatmap,
  grid: Heatmap,
  arcs: Arcs,
  text: WeightedText,
  bars: Bars,
  curves: Curves,
  ranked: Ranked,
  tokens: Tokens,
  list: Listing,
  thumbs: Thumbs,
  histogram: Histogram,
  rotation: Rotation,
  chain: Chain,
};
const BEHIND = { rows: 40, cols: 24 }; // the most of a plane that is a table at once

class Picture {
  /** `choose(cursor, view)` is called when somebody picks a place or a view; `still`: nothing can be picked. */
  constructor({ choose, name = "Picture", still = false }) {
    this.choose = choose;
    this.name = name;
    this.still = still;
    this.drawn = {};
    this.tabs = el("div.views", { role: "toolbar", "aria-label": "Views" });
    this.axes = el("div.axes");
    this.stage = el("div.stage", {
      tabindex: still ? null : 0,
      role: still ? "img" : "application",
      "aria-roledescription": "picture",
    });
    this.value = el("strong.value");
    this.places = el("span.places");
    this.legend = el("div.legend");
    this.behind = el("div.behind.sr");
    this.more = el(
      "button.quiet",
      { type: "button", "aria-pressed": "false", onclick: () => this.toggleBehind() },
      "Numbers as a table",
    );
    this.whose = el("p.whose", { hidden: true });
    this.node = el(
      "figure.picture",
      {},
      el("div.bar-above", {}, this.whose, this.axes),
      this.tabs,
      this.stage,
      el("figcaption", {}, el("div.readout", {}, this.value, this.places), el("div.below", {}, this.legend, this.more)),
      this.behind,
    );
  }

  /** Draw a trace at a cursor in a view; `theme`, `room` and `zoom` say how. */
  show({ trace, cursor, view, theme, room, zoom = 0, page, whose = "" }) {
    this.whose.textContent = whose;
    this.whose.hidden = !whose;
    const step = trace.step(cursor.step, cursor.at);
    const index = placeOf(trace, cursor);
    const views = trace.viewsOf(step, index);
    let chosen = views.find((one) => one.name === view) ?? views[0] ?? null;
    if (chosen?.kind === "histogram") chosen = { ...chosen, rows: chosen.free[0] ?? "", cols: chosen.free[1] ?? "" };
    const told = chosen ? trace.derivedAt(chosen.name, step, index) : null;
    const planed = chosen && !["thumbs", "rotation", "list", "ranked", "chain"].includes(chosen.kind);
    const plane = planed ? Plane.of(trace, cursor, chosen) : null;
    this.now = { trace, cursor, step, index, view: chosen, plane, told, theme, room, zoom, page, fonts: fonts() };
    this.tabsOf(views, chosen);
    this.axesOf();
    if (!chosen) {
      put(this.stage, el("p.absent", {}, this.absent(trace, step)));
      this.kind = null;
    } else {
      const kind = (this.drawn[chosen.kind] ??= new KINDS[chosen.kind](this));
      if (this.kind !== kind) put(this.stage, kind.node);
      this.kind = kind;
      kind.show(this.now);
    }
    this.read(plane ? plane.cellOf(cursor) : null);
    this.legendOf();
    this.more.hidden = !chosen || ["ranked", "tokens", "list", "chain"].includes(chosen.kind);
    later(this, this.still ? 0 : 250, () => this.write());
    return this.now;
  }

  absent(trace, step) {
    if (!trace.has(step.site)) return trace.missing(step.site);
    return "There is no picture of this step in the page.";
  }

  tabsOf(views, chosen) {
    const key = views.map((view) => view.name).join();
    if (key !== this.tabKey) {
      this.tabKey = key;
      this.buttons = views.map((view, n) =>
        el(
          "button.view",
          { type: "button", title: n < 9 ? `${n + 1}` : null, onclick: () => this.choose(this.now.cursor, view.name) },
          view.name,
        ),
      );
      put(this.tabs, this.buttons);
    }
    views.forEach((view, n) =>
      this.buttons[n].setAttribute("aria-pressed", view.name === chosen?.name ? "true" : "false"),
    );
  }

  /** Steppers for what a picture holds fixed: the row of a batch, the head. */
  axesOf() {
    const { trace, step, view, index } = this.now;
    const wanted = view
      ? step.axes
          .filter((axis) => axis === "batch" || HEAD_AXES.includes(axis))
          .filter((axis) => view.fixed.includes(axis))
      : [];
    const many = wanted.filter((axis) => (trace.present(step.site, axis)?.length ?? sizeOf(step, axis)) > 1);
    const key = many.join();
    if (key !== this.axesKey) {
      this.axesKey = key;
      this.steppers = many.map((axis) => {
        const by = (n) => () => this.choose(moveIndex(this.now.trace, this.now.cursor, axis, n));
        const words = el("span.at");
        const button = (sign, n, label) =>
          el("button.step", { type: "button", "aria-label": label, onclick: by(n) }, sign);
        const name = axis.replace("_", " ");
        return [
          axis,
          words,
          el("span.stepper", {}, button("‹", -1, `Previous ${name}`), words, button("›", 1, `Next ${name}`)),
        ];
      });
      put(
        this.axes,
        this.steppers.map(([, , node]) => node),
      );
    }
    for (const [axis, words] of this.steppers)
      words.textContent = `${axis.replace("_", " ")} ${index[axis]} of ${sizeOf(step, axis)}`;
  }

  pick(row, col) {
    if (!this.still) this.choose(this.now.plane.cursorAt(this.now.cursor, row, col));
  }

  hover(cell) {
    const { plane, cursor } = this.now;
    this.read(cell ?? plane.cellOf(cursor), Boolean(cell));
  }

  /** The value at a cell in words. */
  read(cell, hovering = false) {
    const { plane, trace, cursor, view, step, index } = this.now;
    let [value, spots] = ["", []];
    if (plane && cell) {
      value = plane.words(...cell);
      spots = plane.spot(...cell);
      const word = plane.texts?.[cell[0]]?.[cell[1]];
      if (word) value = `${word}  ${value}`;
      const axes = step.axes.filter((axis) => TOKEN_AXES.includes(axis) && !spots.some(([one]) => one === axis));
      spots = [
        ...axes.map((axis) => [
          axis,
          trace.label(plane.batch, index[axis] + firstOf(step, axis), axis),
          index[axis] + firstOf(step, axis),
        ]),
        ...spots,
      ];
      if (view.kind === "tokens") value = exact(plane.value(...cell), true);
    } else if (view?.kind === "ranked") {
      const row = this.kind.rows[this.kind.chosen];
      value = row ? `${row.label} (${row.id})  p ${fixed(row.prob, 4)}  logit ${exact(row.logit)}` : "";
      spots = [["pos", trace.label(cursor.batch, cursor.pos), cursor.pos]];
    } else if (view?.kind === "list" || view?.kind === "rotation") {
      const axis = step.axes.find((one) => TOKEN_AXES.includes(one));
      spots = axis
        ? [
            [
              axis,
              trace.label(cursor.batch, index[axis] + firstOf(step, axis), axis),
              index[axis] + firstOf(step, axis),
            ],
          ]
        : [];
    }
    this.value.textContent = value;
    this.value.classList.toggle("hovering", hovering);
    put(
      this.places,
      spots.map(([axis, label, n]) =>
        el("span.place", {}, el("i", {}, axis), " ", el("b", {}, label), label === String(n) ? "" : ` ${n}`),
      ),
    );
    const words = spots.map(([axis, label, n]) => `${axis} ${label}${label === String(n) ? "" : ` ${n}`}`).join(", ");
    this.said = [value, words].filter(Boolean).join("; ");
  }

  legendOf() {
    const { plane, step } = this.now;
    const scale = this.kind?.legend;
    const parts = [];
    if (scale) {
      const [low, high] = scale.ends;
      const strip = el("span.ramp", { role: "img", "aria-label": `colour scale from ${low} to ${high}` });
      strip.style.background = scale.gradient();
      parts.push(el("span.scale", {}, low, strip, high));
    }
    if (plane && !step.whole && !["text", "arcs"].includes(this.now.view.kind)) {
      const { stats } = plane;
      if (stats.nonfinite) parts.push(el("span.odd", {}, `${count(stats.nonfinite)} not finite`));
      if (stats.masked) parts.push(el("span", {}, `· ${count(stats.masked)} masked`));
      for (const [name, key] of [
        ["min", "low"],
        ["max", "high"],
        ["mean", "mean"],
        ["std", "std"],
      ])
        parts.push(el("span", {}, `${name} ${short(stats[key])}`));
    }
    put(this.legend, parts);
  }

  /** The table behind the picture, and what the picture is called. */
  write() {
    if (!this.now.view) return put(this.behind);
    const { trace, cursor, step, view } = this.now;
    const name = `${step.where ? step.where + ", " : ""}${step.name}, ${view.name}`;
    this.stage.setAttribute(
      "aria-label",
      `${this.name}: ${name}. ${this.said ?? ""}${this.still ? "" : ". Arrow keys up and down, comma and full stop move the cursor."}`,
    );
    put(this.behind, this.table(`${name} at ${addressOf(trace, cursor)}`));
  }

  toggleBehind() {
    const shown = !this.behind.classList.toggle("sr");
    this.more.setAttribute("aria-pressed", String(shown));
  }

  table(caption) {
    const { plane, view, cursor, trace } = this.now;
    if (view.kind === "thumbs") {
      const rows = this.kind.tiles.map((tile) => [tile.title, ...(tile.strongest ??= this.strongest(tile))]);
      return tableOf(
        [
          ["picture", ""],
          ["largest", "number"],
          ["at", ""],
        ],
        rows,
        { caption },
      );
    }
    if (view.kind === "rotation") {
      const rows = this.kind.pairs.map(({ dims, cos, sin, before, after }) => [
        dims.join(", "),
        ...[cos, sin, ...before, ...after].map((x) => exact(x)),
      ]);
      return tableOf(
        ["dims", "cos", "sin", "a before", "b before", "a after", "b after"].map((name) => [name, "number"]),
        rows,
        { caption },
      );
    }
    if (view.kind === "histogram") {
      const { counts, edges } = this.kind.found;
      return tableOf(
        [
          ["from", "number"],
          ["to", "number"],
          ["numbers", "number"],
        ],
        counts.map((n, i) => [short(edges[i]), short(edges[i + 1]), count(n)]),
        { caption },
      );
    }
    if (!plane || view.kind === "tokens") return null;
    const [row, col] = plane.cellOf(cursor);
    const span = (here, total, most) => {
      const first = total <= most ? 0 : clamp(here - (most >> 1), 0, total - most);
      return [first, Math.min(total, first + most)];
    };
    const one = view.kind === "arcs" ? [row, row + 1] : null;
    const [r0, r1] = one ?? span(row, plane.rows, plane.cols === 1 ? 200 : BEHIND.rows);
    const [c0, c1] = span(col, plane.cols, one || plane.rows === 1 ? 200 : BEHIND.cols);
    const cut = [];
    if (!one && r1 - r0 < plane.rows) cut.push(`${view.rows} ${r0} to ${r1 - 1} of ${plane.rows}`);
    if (c1 - c0 < plane.cols) cut.push(`${view.cols} ${c0} to ${c1 - 1} of ${plane.cols}`);
    const head = [el("th", { scope: "col" }, view.rows || "")];
    for (let c = c0; c < c1; c++) head.push(el("th", { scope: "col" }, view.cols ? this.named(view.cols, c) : "value"));
    const rows = [];
    for (let r = r0; r < r1; r++) {
      const cells = [el("th", { scope: "row" }, view.rows ? this.named(view.rows, r) : "")];
      for (let c = c0; c < c1; c++) {
        const word = plane.texts?.[r]?.[c];
        cells.push(el(r === row && c === col ? "td.here" : "td", {}, (word ? word + " " : "") + plane.words(r, c)));
      }
      rows.push(el("tr", {}, cells));
    }
    const words = caption + (cut.length ? `. Shown are ${cut.join(", ")}, around the cursor.` : "");
    return el(
      "table.numbers",
      {},
      el("caption", {}, words),
      el("thead", {}, el("tr", {}, head)),
      el("tbody", {}, rows),
    );
  }

  named(axis, n) {
    const { plane } = this.now;
    const [label, place] = [plane.label(axis, n), plane.place(axis, n)];
    return label === String(place) || axis === DEPTH ? label : `${label} ${place}`;
  }

  strongest(tile) {
    const plane = this.kind.planeOf(tile);
    let best = -1;
    plane.values.forEach((x, i) => {
      if (Number.isFinite(x) && !plane.isMasked(i, x) && (best < 0 || x > plane.values[best])) best = i;
    });
    if (best < 0) return ["", ""];
    const [r, c] = [Math.floor(best / plane.cols), best % plane.cols];
    return [
      plane.words(r, c),
      `${plane.view.rows} ${plane.label(plane.view.rows, r)}, ${plane.view.cols} ${plane.label(plane.view.cols, c)}`,
    ];
  }
}
