import { show, stage } from "./_kit.js";
import { ACTIVATIONS, interpolate, penalty, prox } from "./activation_prox.maths.js";

export default {
  render({ model, el }) {
    const ui = stage(model, el, "An activation, its penalty f and its proximal operator");
    const shape = { width: 360, basis: 210, ratio: 0.95, narrow: 0.56 };
    const left = ui.plot({ label: "The activation", xlabel: "t", ylabel: "σ(t)", ...shape });
    const middle = ui.plot({ label: "The penalty f", xlabel: "p", ylabel: "f(p)", ...shape });
    const right = ui.plot({ label: "The proximal operator", xlabel: "u", ylabel: "prox of αf", ...shape });
    ui.choice("activation", { label: "activation", options: Object.entries(ACTIVATIONS).map(([key, a]) => [key, a.name]) });
    ui.slider("alpha", { label: "step α", min: 1 / 16, max: 16, log: true });
    ui.slider("u", { label: "point u", min: -3.5, max: 3.5, step: 0.05 });

    return ui.start(() => {
      const [key, alpha, u] = ["activation", "alpha", "u"].map(ui.get);
      const a = ACTIVATIONS[key];
      const span = Array.from({ length: 321 }, (_, k) => -4 + k / 40);
      const p = prox(a, u, alpha);
      const curve = penalty(a);
      const level = interpolate(curve, p);

      const [low, high] = [a.sigma(-4), a.sigma(4)];
      left.clear([-4, 4], [low - 0.6, high + 0.6]);
      left.line(span.map((t) => [t, a.sigma(t)]), "reference", { width: 2.5 });
      left.text([-3.8, high + 0.2], a.name, "reference");

      const finite = curve.filter(([, v]) => Number.isFinite(v));
      const seen = finite.filter(([q]) => q >= low - 0.6 && q <= high + 0.6).map(([, v]) => v);
      const floor = Math.min(...seen);
      const tall = Math.min(3, Math.max(0.5, Math.max(...seen) - floor));
      const sky = floor + 3 * tall;
      middle.clear([low - 0.6, high + 0.6], [floor - 0.5 * tall, floor + 1.2 * tall]);
      const [first, last] = [finite[0], finite[finite.length - 1]];
      middle.line(span.map((q) => [q, level + ((p - u) ** 2 - (q - u) ** 2) / (2 * alpha)]), "muted", { dash: "3 3", width: 1.5 });
      const walls = [first[0] > -3.9 && [first[0], sky], ...finite, last[0] < 3.9 && [last[0], sky]].filter(Boolean);
      middle.line(walls, "ours", { width: 2.5 });
      middle.dot([p, level], "peaceman-rachford", { r: 6 });
      middle.text([p, level], "p", "peaceman-rachford", { dx: 9, dy: 16 });

      right.clear([-4, 4], [low - 0.6, high + 0.6]);
      right.line(span.map((t) => [t, a.sigma(t)]), "reference", { dash: "6 4", width: 1.5 });
      right.line(span.map((t) => [t, prox(a, t, alpha)]), "peaceman-rachford", { width: 2.5 });
      right.rule({ x: u }, "muted", { dash: "3 3" });
      right.dot([u, p], "peaceman-rachford", { r: 6 });
      right.text([-3.8, high + 0.2], "σ dashed", "reference");
      const gap = Math.max(...span.map((t) => Math.abs(prox(a, t, alpha) - a.sigma(t))));
      right.describe(`Largest distance from the activation ${show(gap)}`);
      ui.say(
        [`p = prox(u) = ${show(p)}; σ(u) = ${show(a.sigma(u))}`, "peaceman-rachford"],
        gap < 1e-9
          ? `prox of αf is σ itself${Math.abs(alpha - 1) < 1e-9 ? ": α = 1" : " for every α: f is an indicator"}`
          : `prox of αf is up to ${show(gap)} away from σ: σ would solve another network`,
        "p minimises f(p) + (p − u)²/2α: there the dotted parabola touches f from below",
      );
    });
  },
};
