// What keys and fingers do: the keys of the app where it has them.

const ROW_AXES = ["query", "pos", "kv_pos", "src_query", "src"]; // of ↑ ↓: the token
const ZOOMS = 8;

const stepped = (by) => (app) => app.move(stepBy(app.trace, app.cursor, by));
const layered = (by) => (app) => app.move(layerBy(app.trace, app.cursor, by));
const passed = (by) => (app) => app.move(passBy(app.trace, app.cursor, by));
const staged = (by) => (app) => app.move(alongChain(app.trace, app.cursor, by));
const stopped = (by) => (app) => app.toStop(app.state.stop + by);
/** The answer of this stop, if it is hidden; else on. */
const answeredOrOn = (app) => (app.tour.answer?.open === false ? app.tour.toggleAnswer() : app.toStop(app.state.stop + 1));
const zoomed = (by) => (app) => app.set({ zoom: clamp(app.state.zoom + by, -ZOOMS, ZOOMS) });

/** Along the first of these axes that the step has. */
const along = (axes, by) => (app) => {
  const axis = axes.find((one) => app.step.axes.includes(one));
  if (axis) app.move(moveIndex(app.trace, app.cursor, axis, by));
};

/** Another view, counted from the one that is shown. */
const turned = (by) => (app) => {
  const names = app.views.map((view) => view.name);
  const at = names.indexOf(app.view?.name);
  if (names.length) app.move(app.cursor, names[(at + by + names.length) % names.length]);
};

const rowAxis = (app) => ROW_AXES.find((axis) => app.step.axes.includes(axis)) ?? app.view?.rows ?? "";

/** Down the picture: the token; of a ranking the candidate. */
const down = (by) => (app) => {
  const { trace, cursor, view } = app;
  if (view?.rows !== "d_vocab") return app.move(moveIndex(trace, cursor, rowAxis(app), by));
  const ids = view.kind === "ranked" ? (trace.top(cursor.batch, cursor.pos) ?? []).map((one) => one.id) : [];
  if (!ids.length) return app.move(moveIndex(trace, cursor, "d_vocab", by));
  const at = Math.max(0, ids.indexOf(cursor.vocab));
  return app.move({ ...cursor, vocab: ids[clamp(at + by, 0, ids.length - 1)] });
};

/** Across it: the key, the dim, the layer of a look along depth; of a ranking the token. */
const across = (by) => (app) => {
  const { trace, cursor, view } = app;
  if (view?.cols === DEPTH) {
    const plane = Plane.of(trace, cursor, view);
    return app.move(plane.cursorAt(cursor, null, clamp(plane.cellOf(cursor)[1] + by, 0, plane.cols - 1)));
  }
  const row = rowAxis(app);
  const shown = [view?.cols, view?.rows].filter((axis) => axis && axis !== row);
  const rest = [...app.step.axes].reverse();
  const more = rest.filter((axis) => axis !== row && axis !== "batch" && !HEAD_AXES.includes(axis));
  const axis = view?.rows === "d_vocab" ? row : [...shown, ...more][0];
  return axis && app.move(moveIndex(trace, cursor, axis, by));
};

const ACTS = {
  ArrowLeft: stepped(-1),
  ArrowRight: stepped(1),
  Home: stepped(-Infinity),
  End: stepped(Infinity),
  "[": layered(-1),
  "]": layered(1),
  ArrowUp: down(-1),
  ArrowDown: down(1),
  PageUp: down(-10),
  PageDown: down(10),
  ",": across(-1),
  ".": across(1),
  "<": across(-16),
  ">": across(16),
  h: along(HEAD_AXES, 1),
  H: along(HEAD_AXES, -1),
  b: along(["batch"], 1),
  B: along(["batch"], -1),
  v: turned(1),
  V: turned(-1),
  n: staged(1),
  N: staged(-1),
  "{": passed(-1),
  "}": passed(1),
  "+": zoomed(1),
  "=": zoomed(1),
  "-": zoomed(-1),
  0: (app) => app.set({ zoom: 0 }),
  z: (app) => app.large(),
  T: (app) => app.toTheme(app.theme === "dark" ? "light" : "dark"),
  p: () => setTimeout(() => print(), 0),
  Escape: (app) => app.openTree(false),
  "?": (app) => app.help.showModal(),
};
for (let n = 1; n <= 9; n++) ACTS[n] = (app) => app.views[n - 1] && app.move(app.cursor, app.views[n - 1].name);

/** Keys of a lecture, and of the clickers that lecturers hold; they go before the others. */
const TOURING = {
  ArrowRight: stopped(1),
  ArrowLeft: stopped(-1),
  Enter: answeredOrOn,
  " ": answeredOrOn,
  PageDown: answeredOrOn,
  "Shift+ ": stopped(-1),
  Backspace: stopped(-1),
  PageUp: stopped(-1),
  o: (app) => app.tour.toggleAnswer(),
  s: (app) => app.toggleNotes(),
  x: stopped(0),
};
/** Keys inside the list of steps. */
const IN_TREE = { ArrowUp: stepped(-1), ArrowDown: stepped(1) };

/** Does what a key does; whether it does anything. */
function act(app, key, inTree = false) {
  const table = [inTree && IN_TREE, app.tour && TOURING, ACTS].find((one) => one && Object.hasOwn(one, key));
  table?.[key](app);
  return Boolean(table);
}

function listenToKeys(app) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || app.help.open) return;
    const pressing = event.target.closest?.("button, summary, a");
    if (pressing && (event.key === "Enter" || event.key === " ")) return;
    const key = (event.shiftKey && event.key === " " ? "Shift+" : "") + event.key;
    if (!act(app, key, Boolean(event.target.closest?.("nav.tree")))) return;
    event.preventDefault();
    const began = event.timeStamp;
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => (app.paint = performance.now() - began);
      port2.postMessage(0);
    });
  });
}

/** A swipe to the left is one step or stop on, unless what is below the finger scrolls sideways itself. */
function listenToFingers(app) {
  const scrolls = (node) => node && node.scrollWidth > node.clientWidth + 2;
  const quietly = { passive: true };
  let from = null;
  const begin = (event) => {
    const [touch] = event.touches;
    const held = scrolls(event.target.closest?.(".surface, .scrolling, .passes, .views"));
    from = event.touches.length === 1 && !held ? [touch.clientX, touch.clientY, event.timeStamp] : null;
  };
  const end = (event) => {
    const [touch] = event.changedTouches;
    const [x, y] = from ? [touch.clientX - from[0], touch.clientY - from[1]] : [0, 0];
    const swiped = Math.abs(x) > 50 && Math.abs(y) < Math.abs(x) * 0.6 && event.timeStamp - from[2] < 800;
    if (swiped) (app.tour ? stopped : stepped)(x < 0 ? 1 : -1)(app);
    from = null;
  };
  addEventListener("touchstart", begin, quietly);
  addEventListener("touchend", end, quietly);
}
