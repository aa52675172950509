import { show, stage } from "./_kit.js";
import { equilibrium, implicit, loss, unroll, unrolled } from "./implicit_gradient.maths.js";

const THETAS = Array.from({ length: 81 }, (_, k) => -4 + k / 10);
const TRUTH = THETAS.map((t) => [t, loss(equilibrium(t))]);

export default {
  render({ model, el }) {
    const ui = stage(model, el, "Implicit and unrolled gradients of a two-unit network");
    const plot = ui.plot({ label: "Loss against theta, with tangents", ratio: 0.55, narrow: 0.85, width: 720, xlabel: "θ", ylabel: "loss ℓ" });
    ui.slider("theta", { label: "parameter θ", min: -3.5, max: 3.5, step: 0.05 });
    ui.slider("steps", { label: "solver steps k", min: 0, max: 30, step: 1, digits: 0 });
    ui.slider("alpha", { label: "step α", min: 0.05, max: 5, log: true });

    return ui.start(() => {
      const [theta, steps, alpha] = ["theta", "steps", "alpha"].map(ui.get);
      const exact = equilibrium(theta);
      const { z } = unroll(theta, alpha, steps);
      const [true_, early, through] = [implicit(theta, exact), implicit(theta, z), unrolled(theta, alpha, steps)];
      const top = 1.15 * Math.max(...TRUTH.map(([, v]) => v));
      plot.clear([-4, 4], [-0.1 * top, top]);
      plot.line(TRUTH, "reference", { width: 3 });
      plot.line(THETAS.map((t) => [t, loss(unroll(t, alpha, steps).z)]), "muted", { width: 2, dash: "2 3" });
      const tangent = (value, slope, colour, dash) => {
        const reach = 1.3 / Math.hypot(1, (slope * 4) / top);
        plot.line([-reach, reach].map((d) => [theta + d, value + slope * d]), colour, { width: 3, dash });
      };
      tangent(loss(exact), true_, "peaceman-rachford");
      tangent(loss(z), through, "paper", "9 3");
      tangent(loss(z), early, "naive", "4 3");
      plot.dot([theta, loss(exact)], "peaceman-rachford", { r: 6 });
      plot.dot([theta, loss(z)], "naive", { r: 6 });
      plot.text(TRUTH[80], "loss at z*", "reference", { dy: 44, anchor: "end" });
      plot.text([-0.4, loss(unroll(-0.4, alpha, steps).z)], "loss at zₖ", "muted", { dy: -14 });
      const error = Math.hypot(z[0] - exact[0], z[1] - exact[1]);
      const off = (d) => `${show(d, 3)}, off by ${show(Math.abs(d - true_), 3)}`;
      plot.describe(`Implicit gradient ${show(true_, 3)}; at the unconverged point ${show(early, 3)}; unrolled ${show(through, 3)}`);
      ui.say(
        [`implicit gradient at z*: ${show(true_, 3)}`, "peaceman-rachford"],
        [`the same formula at z after ${steps} steps: ${off(early)}`, "naive"],
        [`unrolled through ${steps} steps: ${off(through)} (tangent of the dotted loss)`, "paper"],
        `‖zₖ − z*‖ = ${show(error, 3)}; unrolling keeps ${steps} states, the implicit formula one`,
      );
    });
  },
};
