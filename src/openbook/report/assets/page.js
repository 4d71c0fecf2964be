"use strict";
(() => {
  // Charts are pictures until they come near the window; then Vega draws them again, with tooltips and a legend that works.
  const tooltip = { disableDefaultStyle: true };
  const options = { actions: false, ast: true, defaultStyle: false, renderer: "svg", tooltip };
  const live = new Map();  // plot -> promise of its view
  const enliven = async (plot) => {
    const stage = document.createElement("div");
    const { view } = await vegaEmbed(stage, JSON.parse(plot.nextElementSibling.textContent), options);
    plot.replaceChildren(stage);
    plot.classList.add("live");
    return view;
  };
  const view = (plot) => live.get(plot) ?? live.set(plot, enliven(plot)).get(plot);
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); view(entry.target); }
  }, { rootMargin: "400px" });
  document.querySelectorAll(".plot").forEach((plot) => {
    near.observe(plot);
    plot.addEventListener("keydown", (event) => {  // Enter opens the numbers of a chart
      if (event.key !== "Enter") return;
      const numbers = plot.closest("figure").querySelector("details.numbers");
      numbers.open = true;
      numbers.querySelector("summary").focus();
    });
  });

  // legends: each entry hides and shows its curves
  document.querySelectorAll(".legend button").forEach((button) => {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      const figure = button.closest("figure");
      const hidden = [...figure.querySelectorAll(".legend button[aria-pressed=false]")].map((off) => off.dataset.key);
      figure.querySelectorAll(".plot").forEach(async (plot) => (await view(plot)).signal("hidden", hidden).runAsync());
    });
  });

  // the worked translation, one step at a time
  document.querySelectorAll(".steps").forEach((box) => {
    const items = [...box.querySelectorAll("ol > li")];
    const [first, back, next] = ["first", "back", "next"].map((name) => box.querySelector(`[data-go=${name}]`));
    const progress = box.querySelector("output");
    let at = 0;
    const go = (to) => {
      at = Math.min(Math.max(to, 0), items.length - 1);
      items.forEach((item, k) => item.classList.toggle("now", k === at));
      first.disabled = back.disabled = at === 0;
      next.disabled = at === items.length - 1;
      progress.textContent = `step ${at + 1} of ${items.length}`;
    };
    first.addEventListener("click", () => go(0));
    back.addEventListener("click", () => go(at - 1));
    next.addEventListener("click", () => go(at + 1));
    box.addEventListener("keydown", (event) => {
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: items.length - 1 }[event.key];
      if (to !== undefined) { event.preventDefault(); go(to); }
    });
    box.classList.add("live");
    go(0);
  });

  addEventListener("beforeprint", () => document.querySelectorAll("details:not(.numbers)").forEach((d) => { d.dataset.was = d.open; d.open = true; }));
  addEventListener("afterprint", () => document.querySelectorAll("details:not(.numbers)").forEach((d) => { d.open = d.dataset.was === "true"; }));
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
