// Places as text: blocks.2.attn.pattern[h=3,q=9,k=5]@1 is site, index by axis, pass (engine/sites.py).

const LETTERS = {
  batch: "b",
  pos: "p",
  kv_pos: "k",
  past: "k",
  head: "h",
  kv_head: "g",
  query: "q",
  key: "k",
  src: "p",
  src_query: "q",
  src_key: "k",
  d_model: "d",
  d_embed: "d",
  d_head: "d",
  d_mlp: "d",
  d_rot: "d",
  d_vocab: "v",
  scale: "d",
  expert: "e",
  choice: "c",
  d_expert: "d",
};
for (let i = 0; i < 8; i++) LETTERS[`d_pool${i}`] = "d";
const letter = (axis) => (Object.hasOwn(LETTERS, axis) ? LETTERS[axis] : axis);

const QUERIES = ["query", "src_query"];
const KEYS = ["key", "src_key"];
const PASS_AXES = ["pos", "query"];
const HELD_AXES = ["key", "kv_pos", "past"];
const SOURCE_AXES = ["src", "src_query", "src_key"];
const TOKEN_AXES = [...PASS_AXES, ...HELD_AXES, ...SOURCE_AXES];
const HEAD_AXES = ["head", "kv_head", "choice"];

class AddressError extends Error {}

const NAME = /^[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_0-9]+)*$/;
const ADDRESS = /^([^[\]@\s]+)(?:\[([^[\]]*)\])?(?:@([0-9]{1,9}))?$/;
const TERM = /^([A-Za-z_][A-Za-z_0-9]*)=(-?[0-9]{1,12})?(?:(:)(-?[0-9]{1,12})?)?$/;

const quoted = (text) => `“${text.length > 120 ? text.slice(0, 119) + "…" : text}”`;

/** {site, index: [[axis, number or {start, stop}]…], at: pass or null}. Throws AddressError. */
function parseAddress(text) {
  text = text.trim();
  const found = ADDRESS.exec(text);
  const site =
    found &&
    found[1]
      .split(".")
      .map((part) => part.replace(/^hook_/, ""))
      .join(".");
  if (!found || !NAME.test(site)) {
    throw new AddressError(`${quoted(text)} is not an address; write e.g. blocks.2.attn.pattern[h=3,q=8]@0`);
  }
  const terms = (found[2] ?? "")
    .split(",")
    .map((term) => term.trim())
    .filter(Boolean);
  const index = terms.map((term) => {
    const [, axis, start, colon, stop] = TERM.exec(term) ?? [];
    if (!axis || !(colon || start)) {
      throw new AddressError(`${quoted(text)}: ${quoted(term)} is no index; write e.g. h=3 or q=0:8`);
    }
    const number = (digits) => (digits === undefined ? null : Number(digits));
    return [axis, colon ? { start: number(start), stop: number(stop) } : Number(start)];
  });
  if (new Set(index.map(([axis]) => letter(axis))).size < index.length) {
    throw new AddressError(`${quoted(text)} names an axis twice`);
  }
  return { site, index, at: found[3] === undefined ? null : Number(found[3]) };
}

function formatAddress({ site, index, at }) {
  const value = (i) => (typeof i === "number" ? i : `${i.start ?? ""}:${i.stop ?? ""}`);
  const terms = index.map(([axis, i]) => `${letter(axis)}=${value(i)}`).join(",");
  return site + (terms && `[${terms}]`) + (at === null ? "" : `@${at}`);
}

/** The index by axis name, of a range its first one, non-negative and inside the shape. Throws AddressError. */
function resolveAddress(address, axes, shape) {
  const resolved = {};
  for (const [name, value] of address.index) {
    const place = axes.findIndex((axis) => axis === name || letter(axis) === name);
    if (place < 0) {
      const known = axes.map((axis) => `${letter(axis)} (${axis})`).join(", ");
      throw new AddressError(`${address.site} has no axis “${name}”; its axes are ${known}`);
    }
    const length = shape[place];
    let i = typeof value === "number" ? value : Math.max(-length, Math.min(value.start ?? 0, length - 1));
    if (i < -length || i >= length) throw new AddressError(`${axes[place]} ${i} is outside 0…${length - 1}`);
    resolved[axes[place]] = i < 0 ? i + length : i;
  }
  return resolved;
}
