import { show, stage } from "./_kit.js";
import { spectralNorm } from "./_linalg.js";
import { forwardBackward, gain, grid, HALVING, halving, least, MOST, peacemanRachford, predicted } from "./steps_versus_alpha.maths.js";

export default {
  render({ model, el }) {
    const ui = stage(model, el, "Steps against the step size alpha");
    const plot = ui.plot({ label: "Steps against alpha", logx: true, logy: true, ratio: 0.55, narrow: 0.9, width: 760, xlabel: "step size α", ylabel: "steps" });
    ui.slider("g", { label: "symmetric g", min: 0.5, max: 40, log: true, digits: 1 });
    ui.slider("h", { label: "skew h", min: 0, max: 10, step: 0.1, digits: 1 });
    ui.slider("tol", { label: "tolerance", min: 1e-8, max: 1e-1, log: true, step: 0.1, digits: 3 });

    return ui.start(() => {
      const [m, g, h, tol] = ["m", "g", "h", "tol"].map(ui.get);
      const G = gain(m, g, h);
      const L = spectralNorm(G);
      const alphas = grid();
      const count = (alpha) => peacemanRachford(G, L, m, alpha, tol);
      const measured = alphas.map((a) => [a, count(a)]);
      const forecast = alphas.map((a) => [a, predicted(G, a, tol)]);
      const forward = alphas.map((a) => [a, forwardBackward(G, L, m, a, tol)]);
      const narrow = ui.root.clientWidth < 420;
      plot.clear([1 / 64, 8], [1, 620], HALVING.concat([2, 4, 8]).filter((a, i) => !narrow || i % 2 === 0).map((a) => [a, a < 1 ? "1/" + 1 / a : String(a)]));
      plot.rule({ x: (2 * m) / L ** 2 }, "forward-backward");
      plot.text([(2 * m) / L ** 2, 1], "2m/L²", "forward-backward", { dx: 5, dy: -10 });
      plot.rule({ x: 1 / L }, "muted");
      plot.text([1 / L, 1], "1/L", "muted", { dx: 5, dy: -26 });
      plot.line(forward.filter(([, k]) => k < MOST), "forward-backward", { dash: "6 4" });
      for (const q of forward) if (q[1] === MOST) plot.dot(q, "forward-backward", { r: 2 });
      plot.line(forecast, "ours", { width: 2, dash: "2 4" });
      plot.line(measured, "peaceman-rachford", { width: 2.5 });
      for (const a of HALVING) plot.dot([a, count(a)], "paper", { r: 4, hollow: true });
      const pick = halving(count);
      const [best, chosen] = [least(measured), least(forecast)[0]];
      plot.dot([pick, count(pick)], "paper", { r: 6 });
      plot.dot([chosen, count(chosen)], "ours", { r: 6 });
      plot.text([best[0], best[1]], "Peaceman-Rachford", "peaceman-rachford", { dy: 28, anchor: "middle" });
      plot.text([best[0], best[1]], "and predicted", "ours", { dy: 46, anchor: "middle" });
      const shown = forward.find(([, k]) => k < MOST);
      if (forward.some(([, k]) => k === MOST)) plot.text([7.8, MOST], "forward-backward: over 500", "forward-backward", { dy: 18, anchor: "end" });
      plot.describe(`Fewest steps ${best[1]} at alpha ${show(best[0])}`);
      ui.say(
        [`Peaceman-Rachford: best α ${show(best[0])}, ${best[1]} steps; α = 1 takes ${count(1)}`, "peaceman-rachford"],
        [`from ρ(C diag(s)), three sign vectors: α ${show(chosen)}, ${count(chosen)} steps`, "ours"],
        [`halving from 1 (rings): α ${show(pick)}, ${count(pick)} steps`, "paper"],
        [`forward-backward: ${shown ? `best ${least(forward)[1]} steps at α ${show(least(forward)[0])}` : "no answer within 500 steps"}; 2m/L² = ${show((2 * m) / L ** 2, 3)}`, "forward-backward"],
      );
    });
  },
};
