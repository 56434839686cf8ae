// What a step does: title, formula with this model's numbers, story, what it reads, and whether its checks hold.

const WEIGHTS = 4; // so many of a step's weights are named; a mixture of experts has hundreds

/** What a picture shows in words: the step's own, or those of what was made of it. */
function explained({ trace, step, view, told, page, plane, cursor }) {
  const derived = plane?.told ?? told ?? (view?.title ? view : view?.look ? page.look_words?.[view.look] : null);
  if (derived)
    return {
      title: derived.title,
      formula: derived.formula,
      latex: derived.latex ?? "",
      numbers: derived.numbers ?? "",
      story: derived.story,
    };
  const one = cursor.at === null || trace.passes.length === 1; // sizes are those of all passes together
  return {
    title: step.title || step.label,
    formula: step.formula,
    latex: step.latex,
    numbers: one ? step.numbers : "",
    story: step.story,
    own: true,
  };
}

class Why {
  constructor(go) {
    this.go = go;
    this.node = el("section.why", { "aria-label": "Explanation" });
  }

  show(now) {
    const { trace, step, cursor, page } = now;
    const words = explained(now);
    const key = JSON.stringify([step.index, cursor.at, words.title, words.numbers, trace.n]);
    if (key !== this.key) {
      this.key = key;
      this.cell = el("div.cell");
      const numbers = words.numbers && el("p.numbers", {}, words.numbers);
      put(
        this.node,
        formula(page, words.latex, words.formula),
        numbers,
        words.story && el("p.story", {}, words.story),
        this.cell,
        this.flow(trace, step, cursor),
        this.checks(trace, step, cursor, words),
        this.aside(step),
      );
    }
    put(this.cell, this.chain(now), this.sharing(now));
  }

  flow(trace, step, cursor) {
    const shape = (one) => (one.axes[0] === "batch" && one.shape[0] === 1 ? one.shape.slice(1) : one.shape).join("×");
    const rows = step.reads.map((site) => {
      const known = trace.bySite.get(site);
      const name = known
        ? el("button.link", { type: "button", onclick: () => this.go({ step: known.index }) }, site)
        : site;
      return ["reads", name, known ? shape(trace.step(known.index, cursor.at)) : ""];
    });
    for (const name of step.params.slice(0, WEIGHTS)) rows.push(["weight", name, ""]);
    if (step.params.length > WEIGHTS) rows.push(["weight", `… and ${step.params.length - WEIGHTS} more`, ""]);
    rows.push(["writes", step.site, shape(step)]);
    return el(
      "dl.flow",
      {},
      rows.flatMap(([kind, name, size], n) => [
        el("dt", {}, n && rows[n - 1][0] === kind ? "" : kind),
        el("dd", {}, el("span.site", {}, name), el("span.shape", {}, size)),
      ]),
    );
  }

  /** The cell at the cursor on its way from score to weight. */
  chain({ trace, step, cursor, view }) {
    const stages = stagesOf(trace, step);
    if (stages.length < 2 || !view || view.kind === "thumbs" || view.kind === "chain") return null;
    const rows = stageValues(trace, cursor, stages).map(([one, value]) =>
      el(
        one.site === step.site ? "tr.here" : "tr",
        {},
        el(
          "th",
          { scope: "row" },
          el("button.link", { type: "button", onclick: () => this.go({ step: one.index }) }, one.name),
        ),
        el("td", {}, value),
      ),
    );
    return el("table.chain", {}, el("caption", {}, "this cell, from score to weight"), el("tbody", {}, rows));
  }

  /** Which query heads read one key and value head. */
  sharing({ trace, step, cursor, view }) {
    const per = trace.headsPerKv;
    if (per === 1 || !step.axes.some((axis) => axis === "head" || axis === "kv_head")) return null;
    const total = sizeOf(step, "head") || sizeOf(step, "kv_head") * per;
    const one = Boolean(view?.fixed.some((axis) => HEAD_AXES.includes(axis)));
    const [head, kv] = [clamp(cursor.head, 0, total - 1), Math.floor(clamp(cursor.head, 0, total - 1) / per)];
    const groups = Math.floor(total / per);
    const first = clamp(kv - 4, 0, Math.max(0, groups - 8));
    const lines = [];
    for (let n = first; n < Math.min(groups, first + 8); n++) {
      const heads = Array.from({ length: per }, (_, h) => n * per + h);
      lines.push(
        el(
          one && n === kv ? "li.here" : "li",
          {},
          `kv ${n} ← `,
          heads.flatMap((h) => [one && h === head ? el("b", {}, h) : String(h), " "]),
        ),
      );
    }
    const words =
      groups > 1 ? `${per} query heads share each key and value head` : "all query heads share one key and value";
    return el(
      "div.sharing",
      {},
      el("p", {}, words),
      el("ul", {}, lines),
      groups > 8 && el("p", {}, `of ${groups} kv heads`),
    );
  }

  checks(trace, step, cursor, words) {
    const found = trace.checks.filter((check) => check.site === step.site);
    if (!found.length) return null;
    const heading = [
      words.own ? "checks" : "checks of the step itself",
      trace.passes.length > 1 ? `worst of ${trace.passes.length} passes` : "",
    ]
      .filter(Boolean)
      .join(", ");
    const line = (check) =>
      el(
        check.ok ? "li" : "li.bad",
        {},
        el("span.mark", { "aria-label": check.ok ? "holds" : "does not hold" }, check.ok ? "✓" : "✗"),
        ` ${check.name} `,
        el("small", {}, check.text.startsWith(check.name) ? check.text.slice(check.name.length + 2) : check.text),
      );
    return el("div.checks", {}, el("p", {}, heading), el("ul", {}, found.map(line)));
  }

  aside(step) {
    if (step.on_path || step.part === "input") return null;
    const whole = ["attention", "cross-attention"].includes(step.part) && KEYS.includes(step.axes.at(-1));
    const words = whole
      ? "The pass does all of attention in one step and does not write this down: it was computed to be looked at."
      : "The pass does not write this down: it was computed to be looked at.";
    return el("p.aside", {}, words);
  }
}
