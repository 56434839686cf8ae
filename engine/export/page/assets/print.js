// The page on paper: one figure a page, with its caption, formula and narration, in the light theme.

const PAPER = { width: 660, height: 520 };

/** The sheets of what is to be printed: a lecture's stops, else the place that is looked at. */
function sheetsOf(app) {
  const { tour } = app.page;
  const here = { trace: app.state.trace, cursor: app.cursor, view: app.state.view };
  const stops = tour ? tour.stops.map((stop) => ({ ...app.placeOfStop(stop), stop })) : [here];
  return el(
    "div.sheets",
    {},
    stops.map((place, n) => sheetOf(app, place, n, stops.length)),
  );
}

function sheetOf(app, { trace, cursor, view, stop, beside }, n, total) {
  const places = [{ trace, cursor, view }, ...(beside ? [beside] : [])];
  let first = null;
  const figures = places.map((place) => {
    const picture = new Picture({ choose() {}, still: true });
    const room = { width: PAPER.width, height: PAPER.height / places.length };
    const now = picture.show({ ...place, trace: app.traces[place.trace], theme: "light", room, page: app.page });
    first ??= now;
    return el(
      "div.printed",
      {},
      places.length > 1 && el("p.kicker", {}, app.traces[place.trace].words.prompt),
      picture.node,
      el("p.address", {}, addressOf(now.trace, now.cursor)),
    );
  });
  const words = explained(first);
  const of = first.step.where ? `${first.step.where} · ${first.step.name}` : first.step.name;
  return el(
    "article.sheet",
    {},
    el(
      "header",
      {},
      el("span", {}, app.page.title),
      el("span", {}, total > 1 ? `${n + 1} of ${total}` : app.traces[trace].words.model),
    ),
    el("p.kicker", {}, of),
    el("h2", {}, stop?.title ?? words.title),
    figures,
    el(
      "p.caption",
      {},
      el("b", {}, `Figure ${n + 1}. `),
      words.numbers ? `${words.title} (${words.numbers}).` : `${words.title}.`,
    ),
    formula(app.page, words.latex, words.formula),
    stop
      ? el(
          "div.narration",
          {},
          ...prose(stop.narration),
          stop.question && el("div.question", {}, ...prose(stop.question)),
        )
      : el("p.story", {}, words.story),
  );
}

function printing(app) {
  const { documentElement: root, body } = document;
  let sheets = null;
  let before = null;
  addEventListener("beforeprint", () => {
    before = [root.dataset.theme, root.className];
    [root.dataset.theme, root.className] = ["light", "printing"];
    Surface.density = 2;
    lookAnew();
    sheets = sheetsOf(app);
    body.append(sheets);
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    [root.dataset.theme, root.className] = before;
    Surface.density = 1;
    sheets.remove();
    before = sheets = null;
    app.render();
  });
}
