// Numbers as text, digit for digit as the app writes them (tui/state/numbers.py). Python rounds a tie to the even
// digit and JavaScript upwards, so ties are found exactly: a double is one at `places` decimals if and only if
// x · 2^(places + 1) is an odd integer.

const odd = (x) => Math.abs(x) % 2 === 1;
const toEven = (text) => (odd(Number(text.at(-1))) ? text.slice(0, -1) + (Number(text.at(-1)) - 1) : text); // of a tie

/** Python's f"{value:.{places}f}". */
function fixed(value, places) {
  const x = Math.abs(value);
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  if (x >= 1e21) return sign + BigInt(x) + (places ? "." + "0".repeat(places) : "");
  const text = x.toFixed(places);
  return sign + (odd(x * 2 ** (places + 1)) ? toEven(text) : text);
}

/** The digits and the power of ten of x > 0, rounded to so many digits. */
function scientific(x, digits) {
  const [mantissa, power] = x.toExponential(digits - 1).split("e");
  const places = digits - 1 - power;
  const tie = places >= 0 ? odd(x * 2 ** (places + 1)) : x % 10 ** -places === 10 ** -places / 2;
  return [tie ? toEven(mantissa) : mantissa, Number(power)];
}

const withoutZeros = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

/** Python's f"{value:.{digits}g}". */
function general(value, digits) {
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  if (value === 0) return sign + "0";
  const [mantissa, power] = scientific(Math.abs(value), digits);
  if (power >= -4 && power < digits) return sign + withoutZeros(fixed(Math.abs(value), digits - 1 - power));
  return `${sign}${withoutZeros(mantissa)}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

/** NaN and the infinities by name; "" for a finite value. */
function special(value) {
  if (Number.isNaN(value)) return "NaN";
  return Number.isFinite(value) ? "" : value > 0 ? "∞" : "-∞";
}

/** A value for a readout: six significant digits, or all of a whole number. */
function exact(value, whole = false) {
  return special(value) || (whole ? fixed(value, 0) : general(value, 6));
}

/** A probability with two decimals; one that would be 0.00 is said to be less. */
function share(probability) {
  return probability >= 0.005 || !probability ? fixed(probability, 2) : "<.01";
}

/** A probability in a ranking. */
function ranked(probability) {
  if (probability >= 1e-4 || !probability) return fixed(probability, 4);
  const [mantissa, power] = scientific(probability, 1);
  return `${mantissa}e-${String(-power).padStart(2, "0")}`;
}

/** The value in at most `width` characters, with as many digits as fit. */
function short(value, width = 7) {
  const name = special(value);
  if (name) return name.slice(0, width);
  for (let digits = 5; digits > 0; digits--) {
    let text = general(value, digits);
    if (text.includes("e"))
      text = text.replace(/e([+-])0*(\d)/, (_, sign, power) => (sign === "-" ? "e-" : "e") + power);
    if (text.length <= width) return text;
    const bare = text.replace("0.", ".");
    if (bare.length <= width && !text.includes("e") && Math.abs(value) < 1) return bare;
  }
  return (value < 0 ? "-▸" : "▸").slice(0, Math.max(0, width));
}

const LARGE = 9.94; // the largest magnitude whose decimals are worth their room

/** How many decimals let each number from `low` to `high` fit in `room` characters; -1 if not even one does. */
function decimals(low, high, room, most = 3) {
  const ends = [low, high];
  for (let places = most; places > 0; places--) {
    if (ends.every((end) => cell(Math.max(-LARGE, Math.min(end, LARGE)), places).length <= room)) return places;
  }
  const whole = Math.max(Math.abs(low), Math.abs(high)) > LARGE && ends.every((end) => cell(end, 0).length <= room);
  return whole ? 0 : -1;
}

/** The decimals that tell values of a scale up to `limit` apart; -1: too short. */
function wanted(limit) {
  return [1, 2, 3, 4].find((places) => limit * 10 ** places >= 5) ?? -1;
}

/** A value with a fixed number of decimals and no zero before the point. */
function cell(value, places) {
  let text = fixed(value, places);
  if (Number(text) === 0) text = text.replace(/^-/, "");
  if (text.startsWith("0.")) return text.slice(1);
  return text.startsWith("-0.") ? "-" + text.slice(2) : text;
}

/** With separators: 65,536. */
const count = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");

/** Bytes for people. */
function size(number) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (number < 1024 || unit === "GiB") return unit === "B" ? `${fixed(number, 0)} B` : `${fixed(number, 1)} ${unit}`;
    number /= 1024;
  }
}
