// A generation pass by pass: what each pass read, and how the KV cache grew with it.

class Timeline {
  constructor(choose) {
    this.choose = choose;
    this.node = el("section.timeline", { "aria-label": "Passes and the KV cache" });
  }

  build(trace) {
    this.trace = trace;
    const growth = trace.cache?.growth ?? [];
    const most = Math.max(1, ...trace.passes.map(({ start, length }) => start + length));
    this.bars = trace.passes.map((pass, at) => {
      const label = pass.length === 1 ? trace.label(0, pass.start) : `${pass.length} tokens`;
      const bytes = growth[at] ? `, the cache holds ${size(growth[at].bytes)}` : "";
      const held = el("span.held");
      const fresh = el("span.grown");
      held.style.height = `${(pass.start / most) * 100}%`;
      fresh.style.height = `max(2px, ${(pass.length / most) * 100}%)`;
      const words = `Pass ${at}: ${label}; ${pass.start + pass.length} positions${bytes}`;
      return el(
        "button.pass",
        { type: "button", "aria-label": words, title: words, tabindex: -1, onclick: () => this.choose(at) },
        el("span.column", {}, fresh, held),
        el("span.name", {}, label),
      );
    });
    this.all = el("button.quiet", { type: "button", onclick: () => this.choose(null) }, "all passes");
    this.said = el("p.said");
    this.row = el("div.passes", { role: "group", "aria-label": "Passes" }, this.bars);
    put(
      this.node,
      el("div.heading", {}, el("h2", {}, growth.length ? "Generation and the KV cache" : "Generation"), this.all),
      this.row,
      this.said,
    );
  }

  show(trace, cursor) {
    this.node.hidden = trace.passes.length < 2;
    if (this.node.hidden) return;
    if (trace !== this.trace) this.build(trace);
    const { at } = cursor;
    const last = trace.passes.length - 1;
    this.bars.forEach((bar, n) => {
      bar.setAttribute("aria-pressed", String(n === at));
      bar.tabIndex = n === (at ?? last) ? 0 : -1;
      bar.classList.toggle("past", at !== null && n > at);
    });
    this.all.setAttribute("aria-pressed", String(at === null));
    const bar = this.bars[at ?? last];
    if (
      bar.offsetLeft < this.row.scrollLeft ||
      bar.offsetLeft + bar.offsetWidth > this.row.scrollLeft + this.row.clientWidth
    )
      this.row.scrollLeft = bar.offsetLeft - this.row.clientWidth / 2;
    put(this.said, this.words(trace, at));
  }

  words(trace, at) {
    const cache = trace.cache;
    const grown = cache?.growth?.[at ?? trace.passes.length - 1];
    const pass = at === null ? null : trace.passes[at];
    const what = pass
      ? `Pass @${at}: ${pass.length === 1 ? trace.label(0, pass.start) : `${count(pass.length)} positions`} of ${count(pass.start + pass.length)}`
      : `All ${trace.passes.length} passes stitched together`;
    if (!grown) return what;
    return `${what} · ${grown.new} new in the cache, which holds ${count(grown.positions)} positions in ${size(grown.bytes)}${cache.per_token ? ` (${size(cache.per_token)} each)` : ""}`;
  }
}
