import { show, stage } from "./_kit.js";
import { arc, classify, flagAt, normals, product, stages } from "./mirror_stack.maths.js";

const ORDER = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"];

export default {
  render({ model, el }) {
    const ui = stage(model, el, "Mirrors, one after the other");
    const plane = ui.plot({ label: "A flag and its images in the mirrors", equal: true, width: 520, xlabel: "x₁", ylabel: "x₂" });
    plane.handle("x", { label: "x, the foot of the flag" });
    plane.handle("v", { label: "v, normal of the first mirror", colour: "paper", keep: (q) => (Math.hypot(...q) < 0.3 ? [0.3, 0] : q) });
    ui.slider("k", { label: "mirrors k", min: 0, max: 8, step: 1, digits: 0 });
    ui.slider("theta", { label: "turn θ", min: 0, max: 90, step: 1, format: (v) => `${Math.round(v)}°` });

    return ui.start(() => {
      const [v, x, k, theta] = ["v", "x", "k", "theta"].map(ui.get);
      const mirrors = normals(v, theta, k);
      const shown = stages(mirrors, flagAt(x));
      const U = classify(product(mirrors));
      plane.clear([-2.6, 2.6], [-2.4, 2.4]);
      mirrors.forEach(([a, b], i) => {
        plane.line([[-5 * b, 5 * a], [5 * b, -5 * a]], "paper", { width: i ? 1.2 : 2.2 });
        plane.text([-2.1 * b, 2.1 * a], String(i + 1), "paper", { dx: 4, dy: -4 });
      });
      if (k) plane.line([[0, 0], v], "paper", { width: 1.2, dash: "2 3" });
      if (k) plane.text(v, "v", "paper", { dx: 12, dy: 4 });
      if (U.fewest === 1 && k > 1) {
        const [a, b] = U.normal;
        plane.line([[-5 * b, 5 * a], [5 * b, -5 * a]], "ours", { width: 2.5, dash: "7 4" });
      }
      if (U.fewest === 2) plane.line(arc(x, U.angle, 0.5), "ours", { width: 2, dash: "7 4" });
      shown.forEach((flag, i) => {
        const last = i === k;
        const colour = last ? "ours" : i ? "muted" : "reference";
        plane.line(flag, colour, { width: last || !i ? 3 : 1.2, fill: last ? 0.25 : null });
        if (i && !last) plane.text(flag[0], String(i), "muted", { dx: 6, dy: 14 });
      });
      plane.text(x, "x", "reference", { dx: 12, dy: 14 });
      if (k) plane.text(shown[k][0], "f(x)", "ours", { dx: 6, dy: 16 });
      const what = { 0: "they undo each other: U = I", 1: "together they are one mirror", 2: `together they are a rotation by ${show(U.angle ?? 0, 0)}°` }[U.fewest];
      const all = k === 0 ? "No mirror: U = I" : k === 1 ? "One mirror" : `${k} mirrors, and ${what}`;
      plane.describe(all);
      ui.say(
        [all + (k > 1 && U.fewest ? " (dashed)" : ""), "ours"],
        `det U = ${U.determinant > 0 ? "+1" : "−1"}; rank(I − U) = ${U.fewest}, so ${U.fewest === 1 ? "one mirror is" : `${["no", "", "two"][U.fewest]} mirrors are`} enough`,
        k && k % 2 === 0 ? "the angle is kθ, wherever v points" : k > 1 ? `the ${ORDER[(k - 1) / 2]} mirror alone does the same` : "the flag changes its hand with every mirror",
      );
    });
  },
};
