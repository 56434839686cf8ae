// The prompt as running text: each token is as bright as the cursor's query reads it, with the weight below it.

class WeightedText {
  constructor(picture) {
    this.picture = picture;
    this.node = el("div.scrolling.weighted");
  }

  show(now) {
    const { plane, cursor, theme, room } = now;
    const axis = plane.view.cols;
    const values = plane.values;
    const [, chosen] = plane.cellOf(cursor);
    const query = Object.keys(plane.fixed).find((one) => QUERIES.includes(one));
    const across = { query: "key", src_query: "src_key" }[query] === axis;
    const reader = across ? plane.fixed[query] + firstOf(plane.step, query) - firstOf(plane.step, axis) : -1;
    const most = values.reduce((top, x) => (Number.isFinite(x) ? Math.max(top, Math.abs(x)) : top), 0);
    const scale = new Scale(plane.stats, plane.warm, theme, false, most);
    this.node.style.maxHeight = `${room.height}px`;
    const of = [plane.trace.n, plane.step.site, plane.batch, plane.at].join();
    if (this.of !== of) {
      this.of = of;
      this.words = Array.from({ length: plane.cols }, (_, n) => {
        const label = plane.label(axis, n);
        const text = label.startsWith("␣") && label.length > 1 ? "\u00a0" + label.slice(1) : label;
        return el(
          "span.word",
          { onclick: () => this.picture.pick(null, n) },
          el("span.said", {}, text),
          el("span.share"),
        );
      });
      put(this.node, this.words);
    }
    this.words.forEach((word, n) => {
      const value = values[n];
      const masked = plane.masked(0, n);
      const [fill, on] = masked || n === reader ? ["", ""] : Number.isFinite(value) ? scale.style(value) : ODD[theme];
      word.className = ["word", masked ? "masked" : "", n === reader ? "reader" : "", n === chosen ? "here" : ""].join(
        " ",
      );
      word.firstChild.style.background = fill;
      word.firstChild.style.color = on;
      word.lastChild.textContent = masked ? "·" : special(value) || cell(value, 2);
    });
    this.words[reader >= 0 ? reader : chosen]?.scrollIntoView?.({ block: "nearest" });
  }

  get legend() {
    return null;
  }
}
