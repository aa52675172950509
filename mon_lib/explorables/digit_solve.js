import { drawBounds, drawClasses, greyCanvas } from "./_classes.js";
import { html, show, stage } from "./_kit.js";
import { argmax, bytes, decadeRange, settled } from "./digit_solve.maths.js";

export default {
  render({ model, el }) {
    const ui = stage(model, el, "A digit while the solver runs");
    const [images, size, probabilities, bounds, labels] = ["images", "size", "probabilities", "bounds", "labels"].map(ui.get);
    const last = bounds[0].length;
    const row = html("div", { class: "digits", role: "group", "aria-label": "choose a digit" });
    const buttons = images.map((text, i) => {
      const b = html("button", { type: "button", "aria-label": `digit ${i + 1} of ${images.length}, a ${labels[i]}` }, greyCanvas(bytes(text), size));
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
    const steps = bounds[0].map((_, k) => k + 1);

    return ui.start(() => {
      const [digit, step] = [ui.get("digit"), ui.get("step")];
      buttons.forEach((b, i) => b.setAttribute("aria-pressed", i === digit));
      const all = probabilities[digit];
      const p = all[step - 1];
      const [guess, truth] = [argmax(p), labels[digit]];
      drawClasses(bars, p, all[last - 1], truth);
      drawBounds(fall, bounds.filter((_, i) => i !== digit), bounds[digit], steps, step - 1, range);
      bars.describe(`Most probable class ${guess}, probability ${show(p[guess])}`);
      const early = settled(all) + 1;
      ui.say(
        [`after step ${step}: class ${guess} with probability ${show(p[guess])} (the digit shows ${truth})`, guess === truth ? "peaceman-rachford" : "naive"],
        `certified: ‖z − z*‖ ≤ ${show(bounds[digit][step - 1], 3)} ‖z‖`,
        `from step ${early} on the answer stays ${argmax(all[last - 1])}; the marks: probabilities after step ${last}`,
      );
    });
  },
};
