import { show, stage } from "./_kit.js";
import { angle, at, determinant, lift, preimages, range, reflect, winding } from "./circle_map.maths.js";

const DEGREES = 180 / Math.PI;
const degrees = (t) => `${Math.round((t * DEGREES + 720) % 360)}°`;
const COUNT = ["no point", "one point", "two points", "three points"];

export default {
  render({ model, el }) {
    const ui = stage(model, el, "An auxiliary reflection of the circle");
    const plane = ui.plot({ label: "The unit circle", equal: true, width: 400, xlabel: "x₁", ylabel: "x₂" });
    const graph = ui.plot({ label: "Angle of f(x) against angle of x", width: 460, ratio: 0.95, xlabel: "angle of x", ylabel: "angle of f(x), followed round" });
    const unit = ([a, b]) => (a === 0 && b === 0 ? [1, 0] : [a / Math.hypot(a, b), b / Math.hypot(a, b)]);
    plane.handle("x", { label: "x", keep: unit });
    ui.slider("l1", { label: "λ₁", min: -2, max: 4, step: 0.05 });
    ui.slider("l2", { label: "λ₂", min: -2, max: 4, step: 0.05, marks: () => [[2 * ui.get("l1"), "2λ₁", "ours"]] });

    return ui.start(() => {
      const [l1, l2] = [ui.get("l1"), ui.get("l2")];
      const [l, x] = [[l1, l2], unit(ui.get("x"))];
      const y = reflect(l, x);
      const [theta, target] = [(angle(x) + 2 * Math.PI) % (2 * Math.PI), angle(y)];
      const points = lift(l);
      const [turns, [least, most]] = [winding(points), range(l)];
      const sources = preimages(l, points, target);
      const folds = least < 0 && most > 0;
      const good = turns !== -3 && !folds;
      const colour = good ? "ours" : "naive";

      plane.clear([-1.35, 1.35], [-1.35, 1.35]);
      plane.line(points.map(([t]) => at(t)), "muted", { width: 1.5 });
      const [u, v] = unit([l1 * x[0], l2 * x[1]]);
      if (l1 * x[0] !== 0 || l2 * x[1] !== 0) {
        plane.line([[-2 * v, 2 * u], [2 * v, -2 * u]], "muted", { width: 1.5, dash: "6 4" });
        const far = x[1] * u > x[0] * v ? -1.22 : 1.22; // the end of the mirror away from x
        plane.text([-far * v, far * u], "mirror", "muted", { dx: 6 });
      }
      plane.line([x, y], "muted", { width: 1 });
      for (const t of sources) if (Math.cos(t - theta) < 1 - 1e-5) plane.dot(at(t), "naive", { r: 6, hollow: true });
      plane.dot(y, colour, { r: 6 });
      plane.text(y, "f(x)", colour, { dx: 10, dy: -8 });
      plane.text(x, "x", "reference", { dx: 12, dy: 16 });

      const ticks = [0, 90, 180, 270, 360].map((v) => [v, `${v}°`]);
      const rows = [-720, -360, 0, 360].map((v) => [v, `${v}°`.replace("-", "−")]);
      graph.clear([0, 360], [-960, 660], ticks, rows);
      for (let k = -4; k < 4; k++) graph.rule({ y: target * DEGREES + 360 * k }, "muted", { width: 1 });
      graph.line(points.map(([s, t]) => [s * DEGREES, t * DEGREES]), colour, { width: 2.5 });
      const value = (t) => points[Math.round((t / (2 * Math.PI)) * (points.length - 1))][1];
      for (const t of sources) graph.dot([t * DEGREES, value(t) * DEGREES], "naive", { r: 6, hollow: true });
      graph.dot([theta * DEGREES, value(theta) * DEGREES], "reference", { r: 5 });

      const span = most - least < 1e-9 ? `is ${show(least)} everywhere` : `runs from ${show(least)} to ${show(most)}`;
      const kind = l1 * l2 > 0 ? "the λ's have one sign and a ratio of at most 2" : l1 === l2 ? "W = 0 and H(0) = I" : "one λ is zero, and the mirror stands still";
      const verdict = good
        ? `f is one-to-one: ${kind}`
        : folds
          ? "the ratio of the λ's is past 2: f turns back, and some points are reached three times"
          : "det J never vanishes, and yet every point is reached three times";
      plane.describe(`x at ${degrees(theta)}, f(x) at ${degrees(target)}`);
      graph.describe(`The graph rises by ${turns} turns`);
      ui.say(
        [`winding number ${String(turns).replace("-", "−")}; det J ${span}${folds ? ", through zero" : ""}`, colour],
        `x at ${degrees(theta)}, f(x) at ${degrees(target)}, det J = ${show(l1 * l2 === 0 ? least : determinant(l, x))} at x; ${COUNT[sources.length] ?? sources.length + " points"} with this f(x)`,
        [verdict, colour],
      );
    });
  },
};
