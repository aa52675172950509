import { html, show, stage } from "./_kit.js";
import { argmax, bytes, decadeRange, settled } from "./digit_solve.maths.js";

function picture(text, [height, width]) {
  const canvas = html("canvas", { width, height, "aria-hidden": "true" });
  const pixels = new ImageData(width, height);
  bytes(text).forEach((v, i) => pixels.data.set([v, v, v, 255], 4 * i));
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}

export default {
  render({ model, el }) {
    const ui = stage(model, el, "A digit while the solver runs");
    const [images, size, probabilities, bounds, labels] = ["images", "size", "probabilities", "bounds", "labels"].map(ui.get);
    const last = bounds[0].length;
    const row = html("div", { class: "digits", role: "group", "aria-label": "choose a digit" });
    const buttons = images.map((text, i) => {
      const b = html("button", { type: "button", "aria-label": `digit ${i + 1} of ${images.length}, a ${labels[i]}` }, picture(text, size));
      b.addEventListener("click", () => ui.put("digit", i));
      row.append(b);
      return b;
    });
    ui.root.prepend(row);
    const bars = ui.plot({ label: "Class probabilities", ratio: 0.8, narrow: 0.6, width: 420, xlabel: "class", ylabel: "probability" });
    const fall = ui.plot({ label: "Certified error bound", logy: true, ratio: 0.8, narrow: 0.6, width: 420, xlabel: "step k", ylabel: "bound on ‖z − z*‖/‖z‖" });
    ui.slider("step", { label: "step k", min: 1, max: last, step: 1, digits: 0 });
    ui.watch("digit");
    const range = decadeRange(bounds);

    return ui.start(() => {
      const [digit, step] = [ui.get("digit"), ui.get("step")];
      buttons.forEach((b, i) => b.setAttribute("aria-pressed", i === digit));
      const all = probabilities[digit];
      const p = all[step - 1];
      const [guess, truth] = [argmax(p), labels[digit]];
      const classes = p.map((_, i) => [i, String(i)]);
      bars.clear([-0.6, p.length - 0.4], [0, 1.08], classes, [[0, "0"], [0.5, "0.5"], [1, "1"]]);
      p.forEach((v, i) => {
        const colour = i === truth ? "peaceman-rachford" : i === guess ? "naive" : "muted";
        bars.line([[i - 0.38, 0], [i - 0.38, v], [i + 0.38, v], [i + 0.38, 0]], colour, { close: true, fill: 0.8, width: 1 });
        const end = all[last - 1][i];
        bars.line([[i - 0.45, end], [i + 0.45, end]], "reference", { width: 2 });
      });
      fall.clear([1, Math.max(2, last)], range);
      bounds.forEach((b, i) => i !== digit && fall.line(b.map((v, k) => [k + 1, v]), "muted", { width: 1 }));
      const mine = bounds[digit].map((v, k) => [k + 1, v]);
      fall.rule({ x: step }, "muted");
      fall.line(mine, "peaceman-rachford", { width: 2.5 });
      fall.dot(mine[step - 1], "peaceman-rachford", { r: 6 });
      bars.describe(`Most probable class ${guess}, probability ${show(p[guess])}`);
      const early = settled(all) + 1;
      ui.say(
        [`after step ${step}: class ${guess} with probability ${show(p[guess])} (the digit is a ${truth})`, guess === truth ? "peaceman-rachford" : "naive"],
        `certified: ‖z − z*‖ ≤ ${show(bounds[digit][step - 1], 3)} ‖z‖`,
        `from step ${early} on the answer stays ${argmax(all[last - 1])}; the marks: probabilities after step ${last}`,
      );
    });
  },
};
