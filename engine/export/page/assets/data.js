// The document's tensors: base64 in the page, decoded only where and when somebody looks.

const WIDTHS = { float32: 4, int32: 4, float16: 2, bfloat16: 2 };
let halves = null; // the float32 of each of the 65,536 float16, made when the first one is met

function halfTable() {
  if (halves) return halves;
  halves = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const power = (bits >> 10) & 31;
    const part = bits & 1023;
    const size =
      power === 31 ? (part ? NaN : Infinity) : power ? (1 + part / 1024) * 2 ** (power - 15) : part * 2 ** -24;
    halves[bits] = bits >> 15 ? -size : size;
  }
  return halves;
}

function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** The bytes start … stop of what is written as base64, without decoding the rest. */
function bytesOf(text, start, stop) {
  const first = Math.floor(start / 3);
  const bytes = decodeBase64(text.slice(first * 4, Math.ceil(stop / 3) * 4));
  return bytes.slice(start - first * 3, stop - first * 3);
}

/** Little-endian numbers of a dtype as an array of numbers: every value exactly. */
function numbersOf(bytes, dtype) {
  if (dtype === "float32") return new Float32Array(bytes.buffer, 0, bytes.length / 4);
  if (dtype === "int32") return Float64Array.from(new Int32Array(bytes.buffer, 0, bytes.length / 4));
  const words = new Uint16Array(bytes.buffer, 0, bytes.length / 2);
  const wide = new Float32Array(words.length);
  if (dtype === "float16") {
    const table = halfTable();
    for (let i = 0; i < words.length; i++) wide[i] = table[words[i]];
  } else {
    const bits = new Uint32Array(wide.buffer);
    for (let i = 0; i < words.length; i++) bits[i] = words[i] << 16;
  }
  return wide;
}

/** Keeps what was made last, up to `room`; `weigh` says how much of it one entry takes. */
class Recent {
  constructor(room, weigh = () => 1) {
    Object.assign(this, { room, weigh, used: 0, known: new Map() });
  }

  get(key, make) {
    let found = this.known.get(key);
    if (found !== undefined) this.known.delete(key);
    else {
      found = make();
      this.used += this.weigh(found);
    }
    this.known.set(key, found);
    for (const [old, value] of this.known) {
      if (this.used <= this.room || old === key) break;
      this.known.delete(old);
      this.used -= this.weigh(value);
    }
    return found;
  }
}

/** Reads tensors of a page: `textOf` gives the base64 of a block. */
class Blocks {
  constructor(textOf) {
    this.textOf = textOf;
    this.recent = new Recent(256 << 20, (numbers) => numbers.byteLength);
  }

  /** The numbers first … first + length of a block. */
  read(block, dtype, first, length) {
    const width = WIDTHS[dtype];
    return this.recent.get(`${block} ${dtype} ${first} ${length}`, () =>
      numbersOf(bytesOf(this.textOf(block), first * width, (first + length) * width), dtype),
    );
  }

  /** The bytes from … to of a block. */
  bits(block, from, to) {
    return this.recent.get(`${block} bytes ${from} ${to}`, () => bytesOf(this.textOf(block), from, to));
  }
}
