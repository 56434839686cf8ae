// The page: its state, what keys and fingers do to it, its address, and the parts that show it.

const HASH = /^(stop|view|trace)=(.*)$/;

class App {
  constructor(page, textOf) {
    this.page = page;
    const blocks = new Blocks(textOf);
    this.traces = page.traces.map((json, n) => Object.assign(new Trace(json, blocks), { n }));
    this.state = {
      trace: 0,
      cursor: startCursor(this.traces[0]),
      view: "",
      stop: page.tour ? 0 : -1,
      beside: null,
      zoom: 0,
    };
    this.place = null; // where the stop is
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.theme = this.dark.matches ? "dark" : "light";
    this.build();
    listenToKeys(this);
    listenToFingers(this);
    this.listen();
    if (!this.readHash()) this.toStop(0, false);
    this.render();
    this.ready = performance.now();
  }

  get trace() {
    return this.traces[this.state.trace];
  }

  get cursor() {
    return this.state.cursor;
  }

  get step() {
    return this.trace.step(this.cursor.step, this.cursor.at);
  }

  get views() {
    return this.trace.viewsOf(this.step, placeOf(this.trace, this.cursor));
  }

  /** The view that is shown: the one that was asked for, else the first one. */
  get view() {
    return this.views.find((view) => view.name === this.state.view) ?? this.views[0] ?? null;
  }

  // -- the parts ------------------------------------------------------------------------------------------------

  build() {
    const { page } = this;
    const go = (part) => this.move({ ...this.cursor, ...part });
    const choose = (cursor, view) => this.move(cursor, view ?? this.state.view);
    this.picture = new Picture({ choose });
    this.second = new Picture({
      choose: (cursor, view) =>
        this.set({ beside: { ...this.state.beside, cursor, view: view ?? this.state.beside.view } }),
      name: "Picture beside",
    });
    this.tree = new Tree((part) => (go(part), this.openTree(false)));
    this.strip = new Strip((axis, n) => this.move(toToken(this.trace, this.cursor, axis, n)));
    this.timeline = new Timeline((at) => this.move(inPass(this.trace, this.cursor, at)));
    this.why = new Why(go);
    this.tour =
      page.tour && new TourPanel(page.tour, { stop: (n) => this.toStop(n), back: () => this.toStop(this.state.stop) });
    this.help = helpDialog(Boolean(page.tour));
    this.live = el("div.sr", { role: "status", "aria-live": "polite" });
    this.message = el("p.message", { role: "alert", hidden: true });
    this.kicker = el("p.kicker");
    this.heading = el("h2.what");
    this.walk = el("span.walk");
    const tool = (sign, words, key, act) =>
      el("button.tool", { type: "button", title: `${words} (${key})`, "aria-label": words, onclick: act }, sign);
    const openTree = () => this.openTree(!document.documentElement.classList.contains("tree-open"));
    this.stepsButton = el(
      "button.tool.contents",
      { type: "button", "aria-expanded": "false", onclick: openTree },
      "Steps",
    );
    const tools = el(
      "div.tools",
      {},
      this.stepsButton,
      tool("Aa", "Large type", "z", () => act(this, "z")),
      tool("◐", "Dark or light", "T", () => act(this, "T")),
      tool("Print", "Print, one figure a page", "p", () => act(this, "p")),
      tool("?", "Keys", "?", () => act(this, "?")),
    );
    this.names = namesOf(this.traces);
    this.prompts = this.traces.map((trace, n) =>
      el(
        "button.prompt",
        {
          type: "button",
          onclick: () => this.set({ trace: n, beside: null, cursor: gotoLike(trace, this.trace, this.cursor) }, true),
        },
        this.names[n],
      ),
    );
    const { words, told } = this.traces[0];
    const { n_layers: layers, n_heads: heads, n_kv_heads: shared, d_model: width } = told.config ?? {};
    const facts = [
      words.model,
      layers && `${layers} layers`,
      heads && `${heads} heads${shared && shared !== heads ? `, ${shared} kv` : ""}`,
      width && `d ${width}`,
      told.dtype,
      told.kernel && `sdpa:${told.kernel}`,
      told.edits?.length && `edited: ${told.edits.join("; ")}`,
    ];
    const header = el(
      "header.top",
      {},
      el("div.title", {}, el("h1", {}, page.title), el("p.facts", {}, facts.filter(Boolean).join(" · "))),
      tools,
      this.message,
      this.traces.length > 1 && el("div.prompts", { role: "group", "aria-label": "Traces" }, this.prompts),
    );
    const step = (sign, words, by) =>
      el(
        "button.move",
        { type: "button", "aria-label": words, onclick: () => this.move(stepBy(this.trace, this.cursor, by)) },
        sign,
      );
    this.pair = el("div.pair", {}, this.picture.node);
    this.main = el(
      "main",
      { id: "picture" },
      el(
        "div.headline",
        {},
        el("div", {}, el("div.whereabouts", {}, this.kicker, this.picture.axes), this.heading),
        el("div.moves", {}, step("←", "Previous step", -1), this.walk, step("→", "Next step", 1)),
      ),
      this.strip.node,
      this.pair,
      this.timeline.node,
    );
    const about = page.tour ? prose(page.tour.about) : [];
    const notices = [...(words.notices ?? []), ...(page.rounded ?? []), ...(page.left_out ?? [])];
    const footer = el(
      "footer",
      {},
      about.length ? el("div.about", {}, ...about) : null,
      notices.length
        ? el(
            "details",
            {},
            el("summary", {}, "About the numbers in this page"),
            el(
              "ul",
              {},
              notices.map((one) => el("li", {}, one)),
            ),
          )
        : null,
      el("p", {}, `${page.made_by}. Works offline: everything is in this file.`),
    );
    document.body.append(
      el(
        "a.skip",
        {
          href: "#",
          onclick: (event) => {
            event.preventDefault();
            this.picture.stage.focus();
          },
        },
        "Skip to the picture",
      ),
      el("div.page", {}, header, this.tree.node, this.tour?.node ?? "", this.main, this.why.node, footer),
      this.live,
      this.help,
    );
    document.documentElement.dataset.kind = page.tour ? "tour" : "walk";
    printing(this);
  }

  listen() {
    const moved = () => location.hash !== this.written && this.readHash() && this.schedule();
    addEventListener("popstate", moved);
    addEventListener("hashchange", moved);
    addEventListener("resize", () => this.schedule());
    addEventListener("pointerdown", ({ target }) => target.closest?.(".tree, .contents") || this.openTree(false));
    this.dark.addEventListener("change", () => this.toTheme(this.dark.matches ? "dark" : "light"));
  }

  /** The steps beside a narrow page: opened by their button, closed by a step, by Esc, or beside them. */
  openTree(open) {
    document.documentElement.classList.toggle("tree-open", open);
    this.stepsButton.setAttribute("aria-expanded", String(open));
    if (open) this.tree.node.querySelector("[tabindex='0']")?.focus();
    else if (this.tree.node.contains(document.activeElement)) this.stepsButton.focus();
  }

  // -- state ----------------------------------------------------------------------------------------------------

  set(change, mark = false) {
    const before = this.state;
    this.state = { ...before, ...change };
    const moved =
      mark ||
      before.cursor.step !== this.state.cursor.step ||
      before.view !== this.state.view ||
      before.stop !== this.state.stop;
    this.message.hidden = true;
    this.schedule();
    later("hash", 250, () => this.writeHash());
    this.jumped ||= moved;
  }

  move(cursor, view = this.state.view) {
    this.set({ cursor, view, beside: this.followed(cursor) });
  }

  /** What is beside goes along: to the same token, head and key, and to the same step where it was of the same one. */
  followed(cursor) {
    const { beside } = this.state;
    if (!beside) return null;
    const [mine, its] = [this.trace, this.traces[beside.trace]];
    const changed = Object.entries(cursor).filter(([field, value]) => field !== "step" && value !== this.cursor[field]);
    const same = mine.steps[this.cursor.step].site === its.steps[beside.cursor.step].site;
    const there = same ? its.bySite.get(mine.steps[cursor.step].site) : null;
    const step = there?.index ?? beside.cursor.step;
    return { ...beside, cursor: { ...beside.cursor, ...Object.fromEntries(changed), step } };
  }

  placeOfStop(stop) {
    const at = (place) => {
      const trace = this.traces[place.trace ?? 0];
      return {
        trace: place.trace ?? 0,
        cursor: gotoAddress(trace, startCursor(trace), place.address),
        view: place.view,
      };
    };
    return { ...at(stop), beside: stop.beside ? at(stop.beside) : null };
  }

  toStop(n, mark = true) {
    const { tour } = this.page;
    if (!tour) return;
    const stop = clamp(n, 0, tour.stops.length - 1);
    this.place = this.placeOfStop(tour.stops[stop]);
    this.set({ ...this.place, stop }, mark);
    this.announce = `${tour.stops[stop].title}. `;
  }

  /** Whether the reader has walked away from the stop. */
  get away() {
    const { place, state } = this;
    return (
      Boolean(place) &&
      (place.trace !== state.trace ||
        place.view !== state.view ||
        addressOf(this.traces[place.trace], place.cursor) !== addressOf(this.trace, state.cursor))
    );
  }

  // -- the address line -----------------------------------------------------------------------------------------

  hash() {
    const { stop, view, trace } = this.state;
    const parts = stop >= 0 ? [`stop=${stop + 1}`] : [];
    if (stop < 0 || this.away) {
      parts.push(addressOf(this.trace, this.cursor));
      if (view) parts.push(`view=${encodeURIComponent(view)}`);
      if (trace) parts.push(`trace=${trace}`);
    }
    return "#" + parts.join("&");
  }

  writeHash() {
    const hash = this.hash();
    const jumped = this.jumped && this.written !== undefined;
    this.jumped = false;
    if (hash === this.written) return;
    this.written = hash;
    try {
      history[jumped ? "pushState" : "replaceState"](null, "", hash);
    } catch {
      // a browser that lets no page from a file write its address: the page works all the same
    }
  }

  /** Go where the address line says; false where it says nothing. A place that there is not is told. */
  readHash() {
    let text = location.hash.slice(1);
    if (!text) return false;
    this.written = location.hash;
    try {
      text = decodeURIComponent(text);
    } catch {
      // an address with a lone % is told below
    }
    try {
      const parts = Object.fromEntries(text.split("&").map((part) => HASH.exec(part)?.slice(1) ?? ["address", part]));
      const trace = Number(parts.trace ?? 0);
      if (!this.traces[trace]) throw new AddressError(`There is no trace ${quoted(parts.trace)} in this page.`);
      const stop = parts.stop === undefined ? -1 : Number(parts.stop) - 1;
      if (parts.stop !== undefined && !this.page.tour?.stops[stop])
        throw new AddressError(`There is no stop ${quoted(parts.stop)} in this page.`);
      if (stop >= 0) this.toStop(stop, false);
      if (parts.address !== undefined) {
        const cursor = gotoAddress(
          this.traces[trace],
          trace === this.state.trace ? this.cursor : startCursor(this.traces[trace]),
          parts.address,
        );
        this.set({
          trace,
          cursor,
          view: parts.view ?? "",
          stop: stop >= 0 ? stop : this.page.tour ? this.state.stop : -1,
        });
        if (this.page.tour && stop < 0) this.place = this.placeOfStop(this.page.tour.stops[this.state.stop]);
      }
      return true;
    } catch (error) {
      if (!(error instanceof AddressError)) throw error;
      const shown = this.rendered;
      const told = error.message.endsWith(".") ? error.message : `${error.message}.`;
      later("told", 0, () => this.tell(`${told} Shown is ${shown ? "where you were" : "the beginning"}.`));
      return this.rendered === true;
    }
  }

  tell(words) {
    this.message.textContent = words;
    this.message.hidden = false;
  }

  // -- drawing --------------------------------------------------------------------------------------------------

  schedule() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.render();
      this.waiting = false;
    });
  }

  render() {
    const { state, trace, cursor, theme, page } = this;
    document.documentElement.dataset.theme = theme;
    lookAnew();
    const { step } = this;
    this.kicker.textContent = [step.where, step.name].filter(Boolean).join(" · ");
    this.walk.textContent = `${cursor.step + 1} / ${trace.steps.length}`;
    this.prompts.forEach((button, n) => button.setAttribute("aria-pressed", String(n === state.trace)));
    this.tour?.show(state.stop, this.away);
    this.strip.show(trace, cursor);
    this.timeline.show(trace, cursor);
    const { beside } = state;
    const doubled = Boolean(beside);
    if (doubled !== this.doubled) {
      this.doubled = doubled;
      put(this.pair, this.picture.node, doubled ? this.second.node : null);
    }
    const room = this.room(doubled);
    const look = { theme, room, zoom: state.zoom, page };
    const now = this.picture.show({
      trace,
      cursor,
      view: state.view,
      whose: doubled ? this.names[state.trace] : "",
      ...look,
    });
    if (doubled)
      this.second.show({ ...beside, trace: this.traces[beside.trace], whose: this.names[beside.trace], ...look });
    this.heading.textContent = explained(now).title;
    this.why.show(now);
    this.tree.show(trace, cursor);
    const said = `${this.announce ?? ""}${step.name}. ${this.picture.said}`;
    later("live", 150, () => {
      this.live.textContent = said;
      this.announce = "";
    });
    this.rendered = true;
  }

  /** How much room a picture has. */
  room(doubled) {
    const unit = rem();
    const across = this.pair.clientWidth;
    const abreast = doubled && across > 34 * unit;
    this.pair.classList.toggle("abreast", abreast);
    const narrow = innerWidth < 56 * unit;
    const large = document.documentElement.classList.contains("large");
    const top = this.pair.getBoundingClientRect().top + scrollY;
    const height = narrow
      ? innerHeight * 0.58
      : innerHeight - top - unit * (large ? 4.6 : this.timeline.node.hidden ? 7.2 : 18.4);
    const least = Math.min(unit * 17, innerHeight * (large ? 0.4 : 0.5));
    return {
      width: Math.floor((abreast ? (across - 2 * unit) / 2 : across) - 1),
      height: clamp(height, least, unit * 60) / (doubled && !abreast ? 1.6 : 1),
    };
  }

  toggleNotes() {
    this.tour.notes = !this.tour.notes;
    this.schedule();
  }

  toTheme(theme) {
    this.theme = theme;
    this.schedule();
  }

  large() {
    document.documentElement.classList.toggle("large");
    this.schedule();
  }
}

/** What tells the traces of a page apart: their prompts, their models, or which comes first. */
function namesOf(traces) {
  const told = [(trace) => trace.words.prompt, (trace) => trace.words.model];
  const tells = told.find((name) => new Set(traces.map(name)).size === traces.length && traces.every(name));
  return traces.map(tells ?? ((trace) => (trace.told.edits?.length ? `edited: ${trace.told.edits.join("; ")}` : trace.words.prompt)));
}

/** The cursor of one trace in another: the same site, where it has one. */
function gotoLike(trace, old, cursor) {
  const step = trace.bySite.get(old.steps[cursor.step].site);
  return { ...startCursor(trace), step: step?.index ?? 0, head: cursor.head, dim: cursor.dim };
}

function begin() {
  const read = (id) => document.getElementById(id).textContent.trim();
  const page = JSON.parse(read("layerstep"));
  const app = new App(page, read);
  window.layerstep = {
    state: () => ({
      ...app.state,
      address: addressOf(app.trace, app.cursor),
      view: app.picture.now.view?.name ?? "",
      theme: app.theme,
    }),
    go: (address, view = "") => app.move(gotoAddress(app.trace, app.cursor, address), view),
    get ready() {
      return app.ready;
    },
    get paint() {
      return app.paint;
    },
    get idle() {
      return !app.waiting;
    },
  };
}
begin();
