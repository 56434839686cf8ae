// What the keys do.

const HELP = [
  [
    "Walk",
    [
      ["← →", "step back and on"],
      ["[ ]", "layer before and after"],
      ["Home End", "first and last step"],
      ["n N", "on and back from scores to pattern"],
      ["{ }", "pass before and after; after the last: all of them"],
    ],
  ],
  [
    "In the picture",
    [
      ["↑ ↓", "token before and after; candidate in a ranking"],
      [", .", "key or dim before and after"],
      ["h H", "head on and back"],
      ["b B", "next prompt of a batch, and back"],
      ["v V  1–9", "another view"],
      ["+ − 0", "larger and smaller cells, as they fit"],
    ],
  ],
  [
    "Lecture",
    [
      ["← →", "stop before and after"],
      ["Enter Space PgDn", "the answer, then the next stop"],
      ["PgUp ⇧Space", "stop before"],
      ["o", "show the answer"],
      ["s", "speaker’s notes"],
      ["x", "back to this stop"],
    ],
  ],
  [
    "Page",
    [
      ["z", "large type, for a lecture hall"],
      ["T", "dark or light"],
      ["p", "print, one figure a page"],
      ["Esc", "close what is open"],
      ["?", "this help"],
    ],
  ],
];

/** In a lecture ← and → are the stops'; else there are none. */
const helpFor = (touring) =>
  touring
    ? HELP.map(([name, keys]) => [name, name === "Walk" ? keys.slice(1) : keys])
    : HELP.filter(([name]) => name !== "Lecture");

function helpDialog(touring) {
  const close = el("button.quiet", { type: "button", onclick: () => dialog.close() }, "Close");
  const groups = helpFor(touring).map(([name, keys]) =>
    el(
      "section",
      {},
      el("h3", {}, name),
      el(
        "dl",
        {},
        keys.flatMap(([key, words]) => [
          el(
            "dt",
            {},
            key
              .split(" ")
              .filter(Boolean)
              .flatMap((one) => [el("kbd", {}, one), " "]),
          ),
          el("dd", {}, words),
        ]),
      ),
    ),
  );
  const touch =
    "On a touch screen: swipe for the next step or stop, tap a cell or a token to go there. A link to this place is in the address line.";
  const dialog = el(
    "dialog.help",
    { "aria-label": "Keys", onclick: (event) => event.target === dialog && dialog.close() },
    el("div.sheet", {}, el("h2", {}, "Keys"), el("div.groups", {}, groups), el("p", {}, touch), close),
  );
  return dialog;
}
