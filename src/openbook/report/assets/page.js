"use strict";
(() => {
  const tip = document.getElementById("tip");
  const hide = () => { tip.style.visibility = "hidden"; document.querySelectorAll(".pt.on").forEach((p) => p.classList.remove("on")); };
  const show = (point) => {
    hide();
    point.classList.add("on");
    tip.textContent = point.dataset.t;
    const box = point.getBoundingClientRect();
    const wide = tip.offsetWidth;
    const left = Math.min(Math.max(8, box.left + box.width / 2 - wide / 2), document.documentElement.clientWidth - wide - 8);
    const above = box.top - tip.offsetHeight - 10;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above > 4 ? above : box.bottom + 10) + scrollY}px`;
    tip.style.visibility = "visible";
  };

  // charts: pointer, touch and keys
  document.querySelectorAll("svg.plot").forEach((plot) => {
    const points = () => [...plot.querySelectorAll(".se:not(.off) .pt")];
    let current = null;
    const nearest = (event) => {
      let best = null, least = 26 * 26;
      for (const point of points()) {
        const box = point.getBoundingClientRect();
        const inside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
        const gap = inside ? 0 : (box.left + box.width / 2 - event.clientX) ** 2 + (box.top + box.height / 2 - event.clientY) ** 2;
        if (gap < least) { least = gap; best = point; }
      }
      return best;
    };
    const move = (event) => { const point = nearest(event); if (point) { current = point; show(point); } else hide(); };
    plot.addEventListener("pointermove", move);
    plot.addEventListener("pointerdown", move);
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const all = points();
      if (!all.length) return;
      const at = all.indexOf(current);
      const goto = (point) => { if (point) { current = point; show(point); event.preventDefault(); } };
      if (event.key === "Escape") { hide(); return; }
      if (event.key === "Home") return goto(all[0]);
      if (event.key === "End") return goto(all[all.length - 1]);
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (!step) return;
      if (at < 0) return goto(all[0]);
      if (current.dataset.r !== undefined) {
        const r = +current.dataset.r + step[0], c = +current.dataset.c + step[1];
        return goto(all.find((p) => +p.dataset.r === r && +p.dataset.c === c) || current);
      }
      if (step[1]) return goto(all[(at + step[1] + all.length) % all.length]);
      const groups = [...plot.querySelectorAll(".se:not(.off)")].filter((g) => g.querySelector(".pt"));
      const here = groups.indexOf(current.parentNode);
      const next = groups[(here + step[0] + groups.length) % groups.length];
      const near = (p) => Math.abs(p.getBoundingClientRect().left - current.getBoundingClientRect().left);
      goto([...next.querySelectorAll(".pt")].sort((a, b) => near(a) - near(b))[0]);
    });
  });

  // legends: each entry hides and shows its curves
  document.querySelectorAll(".legend button").forEach((button) => {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      const figure = button.closest("figure");
      const off = new Set([...figure.querySelectorAll(".legend button[aria-pressed=false]")].map((b) => b.dataset.k));
      figure.querySelectorAll("g.se[data-k]").forEach((group) => {
        const published = group.classList.contains("pub");
        group.classList.toggle("off", off.has(group.dataset.k) || (published && off.has("*published*")));
      });
    });
  });

  // the worked translation, one step at a time
  document.querySelectorAll(".steps").forEach((box) => {
    const items = [...box.querySelectorAll("ol > li")];
    const [first, back, next] = ["first", "back", "next"].map((name) => box.querySelector(`[data-go=${name}]`));
    const told = box.querySelector("output");
    let at = 0;
    const go = (to) => {
      at = Math.min(Math.max(to, 0), items.length - 1);
      items.forEach((item, k) => item.classList.toggle("now", k === at));
      first.disabled = back.disabled = at === 0;
      next.disabled = at === items.length - 1;
      told.textContent = `step ${at + 1} of ${items.length}`;
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

  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.dataset.was = d.open; d.open = true; }));
  addEventListener("afterprint", () => document.querySelectorAll("details").forEach((d) => { d.open = d.dataset.was === "true"; }));
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
