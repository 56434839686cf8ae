// A trace of the document: its tokens, its steps in order, their sizes in a pass, and their numbers.

const PARTS = { mlp: "MLP" };
const TOGETHER = ["mean", "max"];

class Trace {
  constructor(json, blocks) {
    const told = json.summary;
    Object.assign(this, { told, blocks, tensors: json.tensors ?? {}, looks: json.looks ?? {}, views: {} });
    for (const [site, n] of Object.entries(json.views ?? {})) this.views[site] = json.view_lists[n];
    Object.assign(this, { words: json.words ?? {}, checks: json.checks ?? [], cache: json.cache ?? null });
    Object.assign(this, { candidates: json.candidates ?? null, vocab: json.vocab ?? {}, derived: json.told ?? [] });
    this.tokens = told.tokens ?? [];
    this.sources = told.source_tokens ?? [];
    this.passes = told.passes?.length ? told.passes : [{ start: 0, length: this.tokens[0]?.length ?? 0 }];
    this.steps = told.steps.map(({ words, ...step }, index) => ({
      ...json.step_words?.[words],
      ...step,
      index,
      ...named(step),
    }));
    this.bySite = new Map(this.steps.map((step) => [step.site, step]));
    this.blockNumbers = [...new Set(this.steps.map((step) => step.block).filter((block) => block !== null))];
    const { n_heads: heads, n_kv_heads: shared } = told.config ?? {};
    this.headsPerKv = shared ? Math.max(1, Math.floor((heads || 1) / shared)) : 1;
    this.usualPass = this.passes.length === 1 ? 0 : null;
    this.planes = new Recent(24);
    this.inPass = new Map();
  }

  /** A step over all passes, or in one: with its shape and what the first index on each axis stands for. */
  step(index, at = null) {
    const step = this.steps[index];
    const origin = step.axes.map(() => 0);
    if (at === null || this.passes.length === 1) return { ...step, origin };
    const key = `${index}@${at}`;
    if (!this.inPass.has(key)) {
      const { start, length } = this.passes[at];
      const held = step.window === null || step.window === undefined ? start : Math.min(start, step.window - 1);
      const shape = [...step.shape];
      step.axes.forEach((axis, n) => {
        if (PASS_AXES.includes(axis)) [origin[n], shape[n]] = [start, length];
        if (axis === "key" || axis === "kv_pos") [origin[n], shape[n]] = [start - held, held + length];
      });
      this.inPass.set(key, { ...step, shape, origin });
    }
    return this.inPass.get(key);
  }

  passOf(pos) {
    const at = this.passes.findIndex(({ start, length }) => start <= pos && pos < start + length);
    return at < 0 ? this.passes.length - 1 : at;
  }

  /** The tokens of one row of the batch that an axis runs over: the text's, or what the encoder has read. */
  line(batch, axis = "pos") {
    return (SOURCE_AXES.includes(axis) ? this.sources : this.tokens)[batch] ?? [];
  }

  label(batch, pos, axis = "pos") {
    return this.line(batch, axis)[pos]?.label ?? String(pos);
  }

  /** The indices along an axis that are in this page; null: all. */
  present(site, axis) {
    return this.tensors[site]?.index?.[axis] ?? null;
  }

  has(site) {
    return Boolean(this.tensors[site]?.block);
  }

  /** Why a site's numbers are not in this page. */
  missing(site) {
    return (
      this.tensors[site]?.why ?? `The numbers of ${site} are not in this page; export it with --keep all for them.`
    );
  }

  /** The pictures of a step that can be drawn, the best one first. */
  viewsOf(step, index) {
    return (this.views[step.site] ?? []).filter((view) => {
      if (view.kind === "grid") return Boolean(this.grid(view.look, step));
      if (view.kind === "list") return Boolean(this.derivedAt(view.name, step, index));
      if (view.kind === "ranked") return Boolean(this.candidates);
      if (view.kind === "chain") return index.head !== undefined;
      return this.has(step.site);
    });
  }

  /** What was derived of the whole pass, of the stream that a step lies on. */
  grid(look, step, batch = 0) {
    const all = (this.looks[look] ?? []).filter((told) => told.sites.includes(step.site));
    return all.find((told) => told.batch === batch) ?? null;
  }

  /** What was derived for one place; of lists it is that of the same token, whatever the dim. */
  derivedAt(view, step, index) {
    return this.derived.find(
      (told) =>
        told.view === view &&
        told.site === step.site &&
        Object.entries(told.index).every(
          ([axis, i]) => index[axis] === i || !["batch", "choice", ...TOKEN_AXES].includes(axis),
        ),
    );
  }

  /** The likeliest tokens after a position, the best one first; null where the page has none. */
  top(batch, pos) {
    if (!this.candidates) return null;
    const [, positions, k] = this.candidates.shape;
    const first = (batch * positions + pos) * k;
    const read = (block, dtype) => this.blocks.read(block, dtype, first, k);
    const [ids, probs, logits] = [
      read(this.candidates.ids, "int32"),
      read(this.candidates.probs, "float32"),
      read(this.candidates.logits, "float32"),
    ];
    const rows = Array.from(ids, (id, n) => ({
      id,
      label: this.vocab[id] ?? String(id),
      prob: probs[n],
      logit: logits[n],
    }));
    return rows.filter((row) => row.id >= 0);
  }

  /** The tensor of a site with the leading axes that `fixed` names chosen: {numbers, axes, shape}. */
  slab(site, fixed) {
    const tensor = this.tensors[site];
    let length = tensor.shape.reduce((a, b) => a * b, 1);
    let first = 0;
    let n = 0;
    for (; n < tensor.axes.length && tensor.axes[n] in fixed; n++) {
      length /= tensor.shape[n] || 1;
      first += this.stored(site, tensor.axes[n], fixed[tensor.axes[n]]) * length;
    }
    const numbers = this.blocks.read(tensor.block, tensor.dtype, first, length);
    return { numbers, axes: tensor.axes.slice(n), shape: tensor.shape.slice(n) };
  }

  /** Where an index of an axis lies in the page's tensor. */
  stored(site, axis, i) {
    const present = this.present(site, axis);
    return present ? Math.max(0, present.indexOf(i)) : i;
  }

  /** One number of a site, its axes fixed; undefined where it is not in the page. */
  number(site, fixed) {
    const tensor = this.tensors[site];
    if (!tensor?.block) return undefined;
    const { numbers } = this.slab(site, Object.fromEntries(tensor.axes.map((axis) => [axis, fixed[axis] ?? 0])));
    return numbers[0];
  }
}

/** What a step is called inside its block, and where it is: "block 2 · attention". */
function named(step) {
  const parts = step.site.replace(/^encoder\./, "").split(".");
  const inner = parts[0] === "blocks" && parts.length > 2 ? parts.slice(2).join(".") : parts.join(".");
  const last = step.site.split(".").at(-1);
  const name = last !== step.label ? step.label : inner.replace(/^(attn|cross_attn|mlp)\./, "");
  const part = PARTS[step.part] ?? step.part;
  const block = step.block === null ? "" : step.block_name || `block ${step.block}`;
  const whole = step.dtype.startsWith("int");
  return { inner, name, whole, where: [block, part === name ? "" : part].filter(Boolean).join(" · ") };
}

/** How long an axis of a step is; 0 where it has none of that name. */
const sizeOf = (step, axis) => step.shape[step.axes.indexOf(axis)] ?? 0;
/** What the first index on an axis stands for: a position, where it runs over a part of the text. */
const firstOf = (step, axis) => step.origin?.[step.axes.indexOf(axis)] ?? 0;
