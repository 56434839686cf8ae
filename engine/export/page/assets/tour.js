// A lecture: stops with narration, questions whose answers stay hidden, and notes for the speaker.

class TourPanel {
  constructor(tour, { stop, back }) {
    this.tour = tour;
    this.notes = false;
    this.node = el("section.tour", { "aria-label": "Lecture" });
    this.count = el("span.count");
    this.back = el("button.quiet", { type: "button", hidden: true, onclick: back }, "Back to this stop");
    const move = (sign, words, by) =>
      el("button.move", { type: "button", "aria-label": words, onclick: () => stop(this.at + by) }, sign);
    this.previous = move("‹", "Previous stop", -1);
    this.next = move("Next ›", "Next stop", 1);
    this.dots = tour.stops.map((one, n) =>
      el("button.dot", {
        type: "button",
        tabindex: -1,
        "aria-label": `Stop ${n + 1}: ${one.title}`,
        title: one.title,
        onclick: () => stop(n),
      }),
    );
    this.title = el("h2", { tabindex: -1 });
    this.text = el("div.narration");
    put(
      this.node,
      el("div.trail", {}, el("div.dots", {}, this.dots), this.count),
      this.title,
      this.text,
      el("div.moves", {}, this.previous, this.next, this.back),
    );
  }

  show(at, away) {
    this.back.hidden = !away;
    const key = `${at} ${this.notes}`;
    if (key === this.key) return;
    const fresh = this.at !== at;
    const answered = !fresh && this.answered;
    [this.key, this.at] = [key, at];
    const { stops } = this.tour;
    const stop = stops[at];
    this.count.textContent = `${at + 1} of ${stops.length}`;
    this.title.textContent = stop.title;
    this.dots.forEach((dot, n) => {
      dot.setAttribute("aria-current", n === at ? "step" : "false");
      dot.classList.toggle("done", n < at);
    });
    this.previous.disabled = at === 0;
    this.next.disabled = at === stops.length - 1;
    const parts = [...prose(stop.narration)];
    if (stop.question) {
      this.answer = el(
        "details.answer",
        { open: answered, ontoggle: (event) => (this.answered = event.target.open) },
        el("summary", {}, "Answer"),
        ...prose(stop.answer),
      );
      parts.push(el("div.question", {}, ...prose(stop.question), this.answer));
      this.answered = answered;
    } else this.answer = null;
    if (stop.notes && this.notes)
      parts.push(el("div.notes", {}, el("p.kicker", {}, "Speaker’s notes"), ...prose(stop.notes)));
    put(this.text, parts);
    if (fresh && !reduced()) {
      this.text.classList.remove("fresh");
      void this.text.offsetWidth;
      this.text.classList.add("fresh");
    }
  }

  /** Show or hide the answer; whether there is one. */
  toggleAnswer() {
    if (!this.answer) return false;
    this.answer.open = !this.answer.open;
    return true;
  }
}
