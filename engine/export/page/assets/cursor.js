// Where the reader is: one frozen value, and pure functions from one to the next (tui/state/cursor.py). A token stays
// chosen from step to step, whatever the axis is called there; so do the head, the key and the dim.

const FIELDS = {
  batch: "batch",
  pos: "pos",
  query: "pos",
  key: "key",
  kv_pos: "key",
  src: "src",
  src_query: "src",
  src_key: "key",
  head: "head",
  choice: "choice",
  d_vocab: "vocab",
};
const fieldOf = (axis) => FIELDS[axis] ?? "dim";

function startCursor(trace) {
  const last = Math.max(0, trace.line(0).length - 1);
  const lastSource = Math.max(0, trace.line(0, "src").length - 1);
  const masked = trace.told.predicts !== "next token" ? (trace.told.masked?.[0] ?? []) : [];
  return Object.freeze({
    step: 0,
    batch: 0,
    head: 0,
    pos: masked[0] ?? last,
    src: lastSource,
    key: Math.max(last, lastSource),
    dim: 0,
    choice: 0,
    vocab: -1,
    at: trace.usualPass,
  });
}

/** The index along an axis of the cursor's step: inside its size, and one that the page has. */
function indexOf(trace, cursor, axis) {
  const step = trace.step(cursor.step, cursor.at);
  const wish = axis === "kv_head" ? Math.floor(cursor.head / trace.headsPerKv) : cursor[fieldOf(axis)];
  const i = clamp(wish - firstOf(step, axis), 0, Math.max(0, sizeOf(step, axis) - 1));
  const present = trace.present(step.site, axis);
  return present && !present.includes(i) ? (present.find((one) => one > i) ?? present.at(-1)) : i;
}

/** The same place with another index along an axis of the step; stays inside. */
function putIndex(trace, cursor, axis, value) {
  const step = trace.step(cursor.step, cursor.at);
  const length = sizeOf(step, axis);
  if (!length) return cursor;
  value = clamp(value, 0, length - 1) + firstOf(step, axis);
  if (axis === "kv_head") {
    const per = trace.headsPerKv;
    return { ...cursor, head: value * per + (cursor.head % per) };
  }
  return { ...cursor, [fieldOf(axis)]: value };
}

/** Along an axis by some places, from one index that the page has to another. */
function moveIndex(trace, cursor, axis, by) {
  const step = trace.step(cursor.step, cursor.at);
  const here = indexOf(trace, cursor, axis);
  const present = trace.present(step.site, axis);
  if (!present) return putIndex(trace, cursor, axis, here + by);
  return putIndex(trace, cursor, axis, present[clamp(present.indexOf(here) + by, 0, present.length - 1)]);
}

function stepBy(trace, cursor, by) {
  return { ...cursor, step: clamp(cursor.step + by, 0, trace.steps.length - 1) };
}

/** The same kind of step some blocks on or back; from outside the blocks, into the nearest one. */
function layerBy(trace, cursor, by) {
  const here = trace.steps[cursor.step];
  const blocks = trace.blockNumbers;
  if (!blocks.length) return cursor;
  if (here.block === null) {
    const before = trace.steps.slice(cursor.step).some((step) => step.block !== null);
    if (before !== by > 0) return cursor;
    const target = before ? blocks[0] : blocks.at(-1);
    return { ...cursor, step: trace.steps.find((step) => step.block === target).index };
  }
  const target = blocks[clamp(blocks.indexOf(here.block) + by, 0, blocks.length - 1)];
  const there = trace.steps.filter((step) => step.block === target);
  return { ...cursor, step: (there.find((step) => step.inner === here.inner) ?? there[0]).index };
}

/** Another pass, or all of them stitched together (null), at a position that was run in it. */
function inPass(trace, cursor, at) {
  if (trace.passes.length === 1) return cursor;
  if (at === null || trace.passOf(cursor.pos) === at) return { ...cursor, at };
  const { start, length } = trace.passes[at];
  return { ...cursor, at, pos: start + length - 1 };
}

/** Some passes on or back; after the last one come all of them together. */
function passBy(trace, cursor, by) {
  const last = trace.passes.length;
  const place = clamp((cursor.at ?? last) + by, 0, last);
  return inPass(trace, cursor, place === last ? null : place);
}

/** Another token; its pass comes along where one pass is looked at. */
function toToken(trace, cursor, axis, place) {
  if (axis === "src") return { ...cursor, src: place };
  const moved = { ...cursor, pos: place };
  return cursor.at === null ? moved : inPass(trace, moved, trace.passOf(place));
}

/** The stage before or after on the way from scores to weights: other values in the same cells. */
function alongChain(trace, cursor, by) {
  const here = trace.steps[cursor.step];
  if (!here.axes.some((axis) => QUERIES.includes(axis))) return cursor;
  const same = (step) =>
    step.block === here.block && step.part === here.part && String(step.axes) === String(here.axes);
  const chain = trace.steps.filter(same);
  return { ...cursor, step: chain[(chain.indexOf(here) + by + chain.length) % chain.length].index };
}

/** Every axis of the step with the cursor's index. */
function placeOf(trace, cursor) {
  const step = trace.steps[cursor.step];
  return Object.fromEntries(step.axes.map((axis) => [axis, indexOf(trace, cursor, axis)]));
}

function addressOf(trace, cursor) {
  return formatAddress({
    site: trace.steps[cursor.step].site,
    index: Object.entries(placeOf(trace, cursor)),
    at: cursor.at,
  });
}

/** The cursor at an address. Throws AddressError. Axes that it does not name keep their index. */
function gotoAddress(trace, cursor, text) {
  const address = parseAddress(text);
  const step = trace.bySite.get(address.site);
  if (!step) throw new AddressError(`There is no site ${quoted(address.site)} in this page.`);
  const last = trace.passes.length - 1;
  if (address.at !== null && address.at > last) {
    throw new AddressError(`There is no pass ${address.at}; write ${last ? `@0 … @${last}` : "@0"}.`);
  }
  let moved = inPass(trace, { ...cursor, step: step.index }, address.at);
  const { axes, shape } = trace.step(moved.step, moved.at);
  const index = resolveAddress(address, axes, shape);
  for (const [axis, i] of Object.entries(index)) moved = putIndex(trace, moved, axis, i);
  for (const [query, key] of [
    ["query", "key"],
    ["src_query", "src_key"],
  ]) {
    if (query in index && axes.includes(key) && !(key in index)) {
      moved = { ...moved, key: firstOf(trace.step(moved.step, moved.at), query) + index[query] };
    }
  }
  return moved;
}
