import { show, stage } from "./_kit.js";
import { census, determinant, generators, isMonotone, isP, matrix, sector, SETS, solutions, title } from "./complementary_cones.maths.js";

const COLOURS = ["muted", "forward-backward", "douglas-rachford", "peaceman-rachford"];

export default {
  render({ model, el }) {
    const ui = stage(model, el, "Complementary cones of a two by two matrix");
    const plane = ui.plot({ label: "The four cones in the plane of c", equal: true, width: 440, xlabel: "c₁", ylabel: "c₂" });
    const answer = ui.plot({ label: "The solutions z", equal: true, width: 300, basis: 200, xlabel: "z₁", ylabel: "z₂" });
    plane.handle("c", { label: "input c" });
    ui.slider("m", { label: "diagonal m", min: 0.1, max: 2, step: 0.05 });
    ui.slider("s", { label: "skew s", min: 0, max: 3, step: 0.05 });
    ui.slider("k", { label: "coupling k", min: -3, max: 3, step: 0.05 });

    return ui.start(() => {
      const [m, s, k, c] = ["m", "s", "k", "c"].map(ui.get);
      const M = matrix(m, s, k);
      const found = solutions(M, c);
      plane.clear([-3, 3], [-3, 3]);
      answer.clear([-0.4, 3.6], [-0.4, 3.6]);
      SETS.forEach((set, j) => {
        const { polygon, middle, width } = sector(M, set);
        const here = found.some((f) => f.set === set);
        plane.line(polygon, COLOURS[j], { close: true, fill: here ? 0.32 : 0.14, width: 0 });
        for (const [x, y] of generators(M, set)) plane.line([[0, 0], [20 * x, 20 * y]], "reference", { width: 1.2 });
        if (width > 0.12) plane.text([2.2 * Math.cos(middle), 2.2 * Math.sin(middle)], title(set), COLOURS[j], { anchor: "middle", dy: 5 });
      });
      for (const { set, z } of found) {
        const j = SETS.indexOf(set);
        answer.line([[0, 0], z], COLOURS[j], { width: 1.5 });
        answer.dot(z, COLOURS[j], { r: 7 });
        answer.text(z, title(set), COLOURS[j], { dx: 10, dy: -8 });
      }
      plane.text(c, "c", "reference", { dx: 12, dy: -8 });
      const WORDS = ["no solution", "one solution", "two solutions", "three solutions", "four solutions"];
      const count = WORDS[found.length];
      const [fewest, most] = census(M);
      const kind = isMonotone(M) ? "monotone, so a P-matrix: the cones tile the plane" : isP(M) ? "not monotone, yet a P-matrix: the cones still tile the plane" : `no P-matrix: some c have ${WORDS[most]}, some ${WORDS[fewest]}`;
      plane.describe(`${count} for this c`);
      const list = found.map(({ set, z }) => `z = (${show(z[0])}, ${show(z[1])}), active ${title(set)}`).join("; ");
      ui.say(
        `G = [${show(M[0][0])} ${show(M[0][1])}; ${show(M[1][0])} ${show(M[1][1])}], det ${show(determinant(M))}: ${kind}`,
        `c = (${show(c[0])}, ${show(c[1])}) lies in ${found.length === 1 ? "one cone" : found.length ? `${found.length} cones` : "no cone"}: ${count}`,
        list || "z = relu(Wz + c) has no equilibrium here",
      );
    });
  },
};
