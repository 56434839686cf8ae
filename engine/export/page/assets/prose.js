// Narration and formulas, from trees in the document to elements: known tags only, foreign words as text.

const INLINE = { strong: "strong", em: "em" };

function inlines(tree) {
  return tree.map(([kind, content]) => {
    if (kind === "text") return content;
    if (kind === "code") return el("code", {}, content);
    return INLINE[kind] ? el(INLINE[kind], {}, ...inlines(content)) : "";
  });
}

/** Blocks of narration: paragraphs, lists, code. */
function prose(tree) {
  return (tree ?? []).map(([kind, content]) => {
    if (kind === "p") return el("p", {}, ...inlines(content));
    if (kind === "pre") return el("pre", {}, content);
    if (kind === "ul" || kind === "ol")
      return el(
        kind,
        {},
        content.map((item) => el("li", {}, ...prose(item))),
      );
    return el("p");
  });
}

const MATH = "http://www.w3.org/1998/Math/MathML";
const MATH_TAGS = new Set(
  "math mrow mi mn mo ms mtext mspace msup msub msubsup mfrac msqrt mroot mover munder munderover mtable mtr mtd mstyle mpadded mphantom mmultiscripts mprescripts none".split(
    " ",
  ),
);
const MATH_ATTRIBUTES = new Set(
  "display mathvariant stretchy fence separator form lspace rspace minsize maxsize symmetric largeop movablelimits accent accentunder linethickness columnalign rowspacing columnspacing displaystyle scriptlevel width height depth".split(
    " ",
  ),
);

function mathml(tree) {
  if (typeof tree === "string") return document.createTextNode(tree);
  const [tag, attributes, children] = tree;
  const node = document.createElementNS(MATH, MATH_TAGS.has(tag) ? tag : "mrow");
  for (const [name, value] of Object.entries(attributes ?? {}))
    if (MATH_ATTRIBUTES.has(name)) node.setAttribute(name, value);
  node.append(...(children ?? []).map(mathml));
  return node;
}

/** The formula of a step: typeset where the page can, else as it is written. */
function formula(page, latex, plain) {
  const tree = latex && page.mathml?.[latex];
  if (tree) return el("div.formula", { role: "math", "aria-label": plain }, mathml(tree));
  return plain ? el("div.formula.plain", {}, plain) : null;
}
