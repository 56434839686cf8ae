// The pass as a table of contents: its steps in order, blocks fold, the one with the cursor is open.

class Tree {
  constructor(go) {
    this.go = go;
    this.node = el("nav.tree", { "aria-label": "Steps of the pass" });
    this.unfolded = new Set();
  }

  build(trace) {
    this.trace = trace;
    this.items = [];
    this.groups = new Map();
    this.unfolded.clear();
    const list = el("ol");
    let group = null;
    for (const step of trace.steps) {
      const button = el(
        step.on_path ? "button" : "button.off",
        { type: "button", tabindex: -1, onclick: () => this.go({ step: step.index }) },
        step.name,
      );
      const item = el("li", {}, button);
      this.items.push(button);
      if (step.block === null) {
        group = null;
        list.append(item);
        continue;
      }
      if (group?.block !== step.block) group = this.group(step, list);
      if (group.part !== step.part) {
        group.part = step.part;
        group.list.append(el("li.part", {}, PARTS[step.part] ?? step.part));
      }
      group.list.append(item);
    }
    put(this.node, list);
  }

  group(step, list) {
    const { block } = step;
    const inner = el("ol", { hidden: true });
    const head = el(
      "button.block",
      { type: "button", tabindex: -1, "aria-expanded": "false", onclick: () => this.fold(block) },
      step.block_name || `block ${block}`,
    );
    list.append(el("li.block", {}, head, inner));
    const group = { block, list: inner, head, part: "" };
    this.groups.set(block, group);
    return group;
  }

  fold(block) {
    if (!this.unfolded.delete(block)) this.unfolded.add(block);
    this.unfold();
  }

  unfold() {
    for (const [block, { list, head }] of this.groups) {
      const open = this.unfolded.has(block);
      list.hidden = !open;
      head.setAttribute("aria-expanded", String(open));
    }
  }

  show(trace, cursor) {
    if (trace !== this.trace) {
      this.build(trace);
      this.here = undefined;
    }
    if (cursor.step === this.here) return;
    const before = this.items[this.here];
    const now = this.items[cursor.step];
    const block = trace.steps[cursor.step].block;
    const was = trace.steps[this.here]?.block ?? null;
    if (block !== was || before === undefined) {
      if (was !== null) this.unfolded.delete(was);
      if (block !== null) this.unfolded.add(block);
      this.unfold();
    }
    before?.removeAttribute("aria-current");
    if (before) before.tabIndex = -1;
    now.setAttribute("aria-current", "step");
    now.tabIndex = 0;
    if (before && document.activeElement === before) now.focus({ preventScroll: true });
    this.here = cursor.step;
    const box = this.node;
    const top = now.getBoundingClientRect().top - box.getBoundingClientRect().top;
    if (top < 40 || top > box.clientHeight - 60) box.scrollTop += top - box.clientHeight / 2;
  }
}
