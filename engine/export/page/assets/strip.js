// The tokens as running text, the cursor's marked, and what the model expects next; of an encoder-decoder both texts.

class Strip {
  constructor(choose) {
    this.choose = choose;
    this.lines = [];
    this.next = el("p.next");
    this.node = el("div.strip");
  }

  build(trace, batch) {
    this.key = [trace, batch];
    const axes = trace.sources.length ? ["src", "pos"] : ["pos"];
    this.lines = axes.map((axis) => {
      const words = trace
        .line(batch, axis)
        .map((token, n) =>
          el(
            token.special ? "span.token.special" : "span.token",
            { role: "listitem", onclick: () => this.choose(axis, n) },
            token.label,
          ),
        );
      const name = axes.length < 2 ? "Tokens" : axis === "src" ? "source" : "target";
      const line = el(
        "div.tokens",
        { role: "list", "aria-label": name },
        axes.length > 1 && el("i", { role: "presentation" }, name),
        words,
      );
      return { axis, words, line, here: [] };
    });
    put(
      this.node,
      this.lines.map(({ line }) => line),
      this.next,
    );
  }

  show(trace, cursor) {
    if (this.key?.[0] !== trace || this.key[1] !== cursor.batch) this.build(trace, cursor.batch);
    const { axes } = trace.steps[cursor.step];
    const keys = axes.find((axis) => ["key", "kv_pos", "src_key"].includes(axis));
    for (const one of this.lines) {
      const source = one.axis === "src";
      const reads = axes.some((axis) => (source ? ["src", "src_query"] : PASS_AXES).includes(axis));
      const last = trace.passes[cursor.at ?? 0];
      const end = source || cursor.at === null ? Infinity : last.start + last.length;
      const marks = {
        here: reads ? (source ? cursor.src : cursor.pos) : -1,
        key: keys && source === (keys === "src_key") ? cursor.key : -1,
      };
      this.mark(one, marks, end);
    }
    const top = trace.top(cursor.batch, cursor.pos)?.slice(0, 3);
    const lead = trace.told.predicts === "next token" ? "next" : "here";
    put(
      this.next,
      top?.length
        ? [
            el("span.lead", {}, `${lead} `),
            ...top.flatMap(({ label, prob }) => [el("b", {}, label), ` ${share(prob)}  `]),
          ]
        : [],
    );
  }

  mark(one, marks, end) {
    const { words, line } = one;
    for (const kind of ["here", "key"]) {
      const [before, now] = [words[one[kind]], words[marks[kind]]];
      if (before !== now) before?.classList.remove(kind);
      now?.classList.add(kind);
      if (kind === "here" && before !== now) {
        before?.removeAttribute("aria-current");
        now?.setAttribute("aria-current", "true");
      }
      one[kind] = marks[kind];
    }
    if (end !== one.end) words.forEach((word, n) => word.classList.toggle("outside", n >= end));
    one.end = end;
    const word = words[marks.here];
    if (!word || line.scrollHeight <= line.clientHeight + 2) return;
    const top = word.offsetTop;
    if (top < line.scrollTop || top + word.offsetHeight > line.scrollTop + line.clientHeight)
      line.scrollTop = top - line.clientHeight / 2;
  }
}
