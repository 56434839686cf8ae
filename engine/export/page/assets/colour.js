// Values as colours: the app's palettes (tui/render/palette.py), each hue monotone in lightness, told apart by all eyes.

const PALETTES = {
  light: {
    neutral: "f1efe8",
    up: ["f5d39e", "de8b2e", "9a4b06"],
    down: ["b4cff2", "4e8adb", "164396"],
    weight: ["c3e3da", "63b5a8", "1e7a78", "0b3f4a"],
  },
  dark: {
    neutral: "1a202d",
    up: ["6b431e", "c47423", "ffc46b"],
    down: ["234474", "3576c9", "8cc4ff"],
    weight: ["15454f", "1e8a86", "7ce0b8", "e2ffd6"],
  },
};
const SHADES = 256;
const ODD = { light: ["#b3202c", "#ffffff"], dark: ["#ff7b85", "#000000"] }; // cells that are no number: fill and ink
const rgb = (hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** So many colours from the first stop to the last. */
function ramp(stops) {
  const colours = stops.map(rgb);
  return Array.from({ length: SHADES }, (_, n) => {
    const place = (n / (SHADES - 1)) * (colours.length - 1);
    const at = Math.min(Math.floor(place), colours.length - 2);
    return colours[at].map((from, k) => Math.round(from + (colours[at + 1][k] - from) * (place - at)));
  });
}

const luminance = (colour) =>
  colour
    .map((part) => part / 255)
    .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, n) => sum + part * [0.2126, 0.7152, 0.0722][n], 0);

/** A colour as the pixel of an image. */
const pointOf = ([red, green, blue]) => (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;

const made = {};
/** The colours of a theme: fills and what is written on them. */
function palette(theme) {
  if (!made[theme]) {
    const { neutral, up, down, weight } = PALETTES[theme];
    const side = (stops) => {
      const colours = ramp([neutral, ...stops]);
      const css = colours.map((colour) => `rgb(${colour.join(" ")})`);
      const inks = colours.map((colour) => (luminance(colour) > 0.179 ? "#000" : "#fff"));
      return { colours, css, inks, points: Uint32Array.from(colours, pointOf) };
    };
    made[theme] = { up: side(up), down: side(down), weight: side(weight) };
  }
  return made[theme];
}

/** How the values of a picture become colours; `limit` is where the scale ends. */
class Scale {
  constructor(stats, warm, theme, whole = false, limit = stats.limit) {
    Object.assign(this, {
      stats,
      warm,
      whole,
      theme,
      limit: limit || 1,
      palette: palette(theme),
      signed: stats.signed,
    });
  }

  /** −1 … 1. */
  part(value) {
    return this.whole ? 0 : clamp(value / this.limit, -1, 1);
  }

  side(value) {
    return this.palette[value < 0 ? "down" : this.warm ? "weight" : "up"];
  }

  /** [fill, ink] of a finite value. */
  style(value) {
    const shade = Math.round(Math.abs(this.part(value)) * (SHADES - 1));
    const side = this.side(value);
    return [side.css[shade], side.inks[shade]];
  }

  /** The pixel of any value; `masked` is that of a masked cell. */
  point(value, masked) {
    if (masked !== undefined) return masked;
    if (!Number.isFinite(value)) return pointOf(rgb(ODD[this.theme][0].slice(1)));
    return this.side(value).points[Math.round(Math.abs(this.part(value)) * (SHADES - 1))];
  }

  /** A colour that can be seen as a line or bar. */
  stroke(value) {
    const least = 90;
    return this.side(value).css[Math.round(least + Math.abs(this.part(value)) * (SHADES - 1 - least))];
  }

  /** The ends in words; ≤ and ≥ where there are values beyond. */
  get ends() {
    const far = this.limit * 1.0001;
    const below = this.stats.low < -far ? "≤" : "";
    const above = this.stats.high > far ? "≥" : "";
    return [this.signed ? `${below}${short(-this.limit)}` : "0", `${above}${short(this.limit)}`];
  }

  gradient() {
    const stops = [];
    for (let n = this.signed ? -8 : 0; n <= 8; n++) stops.push(this.style((n / 8) * this.limit)[0]);
    return `linear-gradient(to right, ${stops.join(", ")})`;
  }
}
