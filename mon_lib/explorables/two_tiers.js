import { clamp, show, stage } from "./_kit.js";
import { eigenvalues, ellipse, equilibria, gain, leftEnd, limit, response, slopes } from "./two_tiers.maths.js";

const FAR = 3.4;

export default {
  render({ model, el }) {
    const ui = stage(model, el, "Two tiers and the factor theta between them");
    const plane = ui.plot({ label: "Numerical range of I minus W", equal: true, width: 460, xlabel: "Re", ylabel: "Im" });
    const state = ui.plot({ label: "What each tier answers to the other", equal: true, width: 400, xlabel: "z₁", ylabel: "z₂" });
    state.handle("alone", { label: "equilibrium without coupling", colour: "muted", keep: (q) => q.map((v) => clamp(v, 0.05, 3)) });
    ui.slider("theta", {
      label: "coupling θ", min: -4, max: 4, step: 0.05,
      marks: () => [-1, 1].map((s) => [s * limit(ui.get("a")), ui.get("a") === 0 ? `${s < 0 ? "−" : ""}2` : `${s < 0 ? "−" : ""}2√(1+a²)`, "naive"]),
    });
    ui.slider("up", { label: "share upwards", min: 0, max: 1, step: 0.05 });
    ui.slider("a", { label: "A₁₁ = a", min: 0, max: 1.2, step: 0.05 });
    ui.slider("m", { label: "m", min: 0.05, max: 1, step: 0.05 });

    return ui.start(() => {
      const [theta, up, a, m, alone] = ["theta", "up", "a", "m", "alone"].map(ui.get);
      const G = gain(theta, m, a, up);
      const [left, found, roots] = [leftEnd(G), equilibria(G, alone), eigenvalues(G)];
      const kept = left >= m - 1e-9;
      const colour = kept ? "peaceman-rachford" : "naive";
      plane.clear([-1.3, 4.5], [-2.5, 2.5]);
      plane.line([[m, -9], [-9, -9], [-9, 9], [m, 9]], "naive", { width: 0, fill: 0.09 });
      plane.rule({ x: m }, "naive", { dash: null, width: 2 });
      plane.line(ellipse(G), colour, { close: true, fill: 0.15, width: 2.5 });
      for (const x of roots) plane.dot([x, 0], "reference", { r: 4.5, hollow: true });
      plane.dot([left, 0], colour, { r: 5 });
      plane.text([m, 2.2], "Re = m", "naive", { dx: 8 });
      plane.describe(`It begins at Re = ${show(left)}, and m = ${show(m)}`);

      const [first, second] = slopes(G);
      state.clear([-0.15, FAR - 0.2], [-0.15, FAR - 0.2]);
      const [tier1, tier2] = [response(alone[0], first, FAR).map(([y, x]) => [x, y]), response(alone[1], second, FAR)];
      state.line(tier1, "ours", { width: 2.5 });
      state.line(tier2, "paper", { width: 2.5, dash: "7 4" });
      state.text([tier1[0][0], 0], "tier 1", "ours", { dx: 8, dy: -8 });
      state.text([0, tier2[0][1]], "tier 2", "paper", { dx: 6, dy: -9 });
      state.text(alone, "θ = 0", "muted", { dx: 13, dy: -10 });
      for (const z of found) state.dot(z, "reference", { r: 6 });
      const count = ["no equilibrium", "one equilibrium", "two equilibria", "three equilibria"][found.length];
      state.describe(`The two lines have ${count} in common`);
      const oneWay = theta === 0 || up === 0 || up === 1;
      const why = oneWay
        ? "the coupling goes one way, so one tier is solved after the other: unique at every θ"
        : `det(I − W) = ${show(G[0][0] * G[1][1] - G[0][1] * G[1][0])}: unique for every input exactly if it is positive`;
      ui.say(
        [`the range of I − W begins at ${show(left)}: ${kept ? `not left of m = ${show(m)}, strongly monotone` : `left of m = ${show(m)}, the constant is lost`}`, colour],
        `it is kept for |θ| ≤ ${a === 0 ? "2" : `2√(1 + a²) = ${show(limit(a))}`}, whatever share goes upwards`,
        [`${count}${found.length === 1 ? ` at (${found[0].map((v) => show(v)).join(", ")})` : ""}; ${why}`, found.length === 1 ? "reference" : "naive"],
      );
    });
  },
};
