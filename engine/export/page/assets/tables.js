// Pictures that are tables: the vocabulary at one position, the tokens, and what the engine ranked.

/** A table: columns are [name, class], rows are cells (text or nodes); `chosen` is marked, a click picks a row. */
function tableOf(columns, rows, { chosen = -1, pick = null, caption = "" } = {}) {
  const head = el(
    "tr",
    {},
    columns.map(([name, kind]) => el(`th${kind ? "." + kind : ""}`, { scope: "col" }, name)),
  );
  const body = rows.map((cells, n) =>
    el(
      n === chosen ? "tr.here" : "tr",
      { "aria-current": n === chosen ? "true" : null, onclick: pick && (() => pick(n)) },
      cells.map((cell, c) => {
        const kind = columns[c][1];
        return el(`td${kind ? "." + kind : ""}`, {}, cell instanceof Node ? cell : String(cell));
      }),
    ),
  );
  return el("table.listing", {}, caption && el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, body));
}

function barOf(part, colour) {
  const fill = el("span.fill");
  fill.style.width = `${Math.max(0, Math.min(1, part)) * 100}%`;
  if (colour) fill.style.background = colour;
  return el("span.bar", { "aria-hidden": "true" }, fill);
}

class Listed {
  constructor(picture) {
    this.picture = picture;
    this.node = el("div.scrolling");
  }

  put(table, room) {
    const top = this.node.scrollTop;
    put(this.node, table);
    this.node.style.maxHeight = `${room.height}px`;
    this.node.scrollTop = top;
    const here = table.querySelector("tr.here");
    if (!here) return;
    const [from, to] = [here.offsetTop - rem() * 2.2, here.offsetTop + here.offsetHeight];
    if (from < this.node.scrollTop) this.node.scrollTop = from;
    else if (to > this.node.scrollTop + this.node.clientHeight) this.node.scrollTop = to - this.node.clientHeight;
  }

  get legend() {
    return null;
  }
}

/** The likeliest next tokens at the cursor's position. */
class Ranked extends Listed {
  show({ trace, cursor, theme, room }) {
    const pos = cursor.pos;
    const rows = trace.top(cursor.batch, pos) ?? [];
    this.rows = rows;
    if (!rows.length) {
      put(this.node, el("p.quiet", {}, "No ranking: values here are not finite."));
      return;
    }
    this.chosen = Math.max(
      0,
      rows.findIndex((row) => row.id === cursor.vocab),
    );
    const colour = palette(theme).up.css[170];
    const cells = rows.map((row, n) => [
      n + 1,
      row.label,
      row.id,
      exact(row.logit).slice(0, 9),
      ranked(row.prob),
      barOf(row.prob / (rows[0].prob || 1), colour),
    ]);
    const columns = [
      ["rank", "number"],
      ["token", "token"],
      ["id", "number"],
      ["logit", "number"],
      ["probability", "number"],
      ["", "wide"],
    ];
    const pick = (n) => this.picture.choose({ ...this.picture.now.cursor, vocab: rows[n].id });
    this.put(tableOf(columns, cells, { chosen: this.chosen, pick }), room);
  }
}

const ORIGINS = {
  text: "",
  tokenizer: "added by the tokenizer",
  template: "of the chat template",
  generated: "generated",
  padding: "padding",
};

/** Whole numbers per token: ids, positions. */
class Tokens extends Listed {
  show({ trace, plane, cursor, room }) {
    const axis = plane.view.rows;
    const [chosen] = plane.cellOf(cursor);
    const ids = /^(source_)?tokens$/.test(plane.step.site);
    const line = trace.line(plane.batch, axis);
    const rows = Array.from({ length: plane.rows }, (_, n) => {
      const place = plane.place(axis, n);
      const token = line[place] ?? { id: "", label: "", hex: "", origin: "" };
      const group = Array.isArray(token.group) ? `part ${token.group[0]} of ${token.group[1]}` : "";
      const notes = [
        ORIGINS[token.origin] ?? token.origin ?? "",
        token.special && token.origin === "text" ? "special" : "",
        group,
      ];
      const own = exact(plane.value(n, 0), true);
      const bytes = (token.hex ?? "").replace(/(..)(?=.)/g, "$1 ");
      return [place, token.label, own, ...(ids ? [] : [token.id]), bytes, notes.filter(Boolean).join(", ")];
    });
    const columns = [
      ["pos", "number"],
      ["token", "token"],
      [ids ? "id" : plane.step.name, "number"],
      ...(ids ? [] : [["id", "number"]]),
      ["bytes", "token.several"],
      ["note", ""],
    ];
    this.put(tableOf(columns, rows, { chosen, pick: (n) => this.picture.pick(n, null) }), room);
  }
}

/** A list that the engine ranked: nearest tokens, most active neurons. */
class Listing extends Listed {
  show({ told, theme, room }) {
    const most = told.columns.map((_, c) =>
      told.rows.reduce((top, row) => Math.max(top, Math.abs(Number(row[c])) || 0), 0),
    );
    const columns = told.columns.map(({ name, kind }) => [
      name,
      kind === "labels" ? "token.several" : kind === "label" ? "token" : "number",
    ]);
    const barred = told.columns.findIndex(({ kind }) => kind === "bar");
    if (barred >= 0) columns.splice(barred + 1, 0, ["", "wide"]);
    const rows = told.rows.slice(0, 50).map((row) => {
      const cells = row.map((value, c) => {
        const { kind } = told.columns[c];
        if (value === null || value === undefined) return "";
        if (kind === "labels") return value.join("  ");
        if (kind === "label") return value;
        return kind === "int" ? value : short(Number(value), 8);
      });
      if (barred >= 0) {
        const value = Number(row[barred]);
        cells.splice(
          barred + 1,
          0,
          barOf(Math.abs(value) / (most[barred] || 1), palette(theme)[value < 0 ? "down" : "up"].css[170]),
        );
      }
      return cells;
    });
    this.put(tableOf(columns, rows), room);
  }
}

/** The steps that one cell goes through from its score to its weight. */
function stagesOf(trace, step) {
  if (!step.axes.some((axis) => QUERIES.includes(axis)) || !step.axes.some((axis) => KEYS.includes(axis))) return [];
  const same = (one) => one.block === step.block && one.part === step.part && String(one.axes) === String(step.axes);
  return trace.steps.filter((one) => same(one) && trace.has(one.site));
}

/** The same cell in each of these steps: [step, value in words]. */
function stageValues(trace, cursor, steps) {
  return steps.map((step) => {
    const [rows, cols] = step.axes.slice(-2);
    const view = { name: "heatmap", kind: "attention", rows, cols, look: "", over: "", fixed: step.axes.slice(0, -2) };
    const plane = Plane.of(trace, { ...cursor, step: step.index }, view);
    return [step, plane.words(...plane.cellOf({ ...cursor, step: step.index }))];
  });
}

/** One cell from its score to its weight. */
class Chain extends Listed {
  show({ trace, cursor, step, room }) {
    const stages = stageValues(trace, cursor, stagesOf(trace, step));
    const rows = stages.map(([one, value]) => [one.name, value, one.formula]);
    const pick = (n) => this.picture.choose({ ...cursor, step: stages[n][0].index }, "chain");
    const chosen = stages.findIndex(([one]) => one.site === step.site);
    this.put(
      tableOf(
        [
          ["stage", "token"],
          ["value", "number"],
          ["formula", ""],
        ],
        rows,
        { chosen, pick },
      ),
      room,
    );
  }
}
