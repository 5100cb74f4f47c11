"use strict";
// The page around the figures: colours for light and dark, which run is looked at, and where the reader is.

(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  // --- colours -----------------------------------------------------------------------------------------------

  function palette() {
    const style = getComputedStyle(root), known = new Map([["dark", dark() ? "1" : "0"]]);
    return name => {
      if (!known.has(name)) known.set(name, style.getPropertyValue(`--${name}`).trim());
      return known.get(name);
    };
  }

  function faded(colour, opacity) {
    const [r, g, b] = [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));
    return `rgba(${r},${g},${b},${opacity})`;
  }

  // A figure with the names of colours (@s0, @s0/0.2) replaced by colours.
  function coloured(value, look) {
    if (typeof value === "string" && value[0] === "@") {
      const [name, opacity] = value.slice(1).split("/");
      return opacity ? faded(look(name), opacity) : look(name);
    }
    if (Array.isArray(value)) {
      const stop = value.length === 2 && typeof value[0] === "number" && typeof value[1] === "string";  // of a colour scale
      return stop || typeof value[0] === "object" ? value.map(each => coloured(each, look)) : value;
    }
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, key === "name" ? each : coloured(each, look)]));
  }

  // --- figures -----------------------------------------------------------------------------------------------

  const places = [...document.querySelectorAll("[data-figure]")].filter(place => facts.figures[place.dataset.figure]);
  const seen = new Set();
  let chosen = Number(document.getElementById("run")?.value ?? 0);

  function themed(figure, look) {
    const { data, layout } = coloured(figure, look);
    const axis = { gridcolor: look("grid"), linecolor: look("rule"), zerolinecolor: look("rule"), zeroline: false, automargin: true, title: { standoff: 10, font: { size: 12 } }, tickfont: { size: 12 } };
    const full = { ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: "zoom" };
    full.font = { family: getComputedStyle(document.body).fontFamily, size: 13, color: look("muted") };
    full.hoverlabel = { bgcolor: look("ink"), bordercolor: look("ink"), font: { color: look("card"), size: 13 }, namelength: 40 };
    for (const key of Object.keys(layout)) {
      if (!/^[xy]axis/.test(key)) continue;
      full[key] = { ...axis, fixedrange: !(key === "xaxis" && layout.xaxis.maxallowed), ...layout[key], title: { ...axis.title, ...layout[key].title } };
    }
    if (facts.runs.length > 1) {
      for (const trace of data) {
        if (trace.meta === undefined) continue;
        trace.opacity = trace.meta === chosen ? 1 : 0.72;
        if (trace.line) trace.line.width = trace.meta === chosen ? 3 : 1.4;
      }
      data.sort((a, b) => (a.meta === chosen) - (b.meta === chosen));
    }
    return { data, layout: full };
  }

  function drawFigure(place) {
    if (place.closest("[hidden]")) return;
    const { data, layout } = themed(facts.figures[place.dataset.figure], palette());
    seen.add(place);
    return Plotly.react(place, data, layout, { displayModeBar: false, responsive: true, doubleClick: "autosize" });
  }

  const drawAll = () => Promise.all(places.map(drawFigure));

  function drawKeys() {
    const look = palette();
    for (const item of document.querySelectorAll("[data-key]")) {
      const index = Number(item.dataset.key), line = item.querySelector("line"), style = facts.runs[index].line;
      line.setAttribute("stroke", coloured(style.color, look));
      line.setAttribute("stroke-width", index === chosen ? 4 : 2);
      line.setAttribute("stroke-dasharray", { dash: "6 4", dot: "2 3", dashdot: "6 3 2 3" }[style.dash] || "");
      item.style.fontWeight = index === chosen ? 650 : 400;
    }
  }

  // --- which run ---------------------------------------------------------------------------------------------

  const mapRoot = document.getElementById("clustermap");
  const map = mapRoot && new ClusterMap.Drawing(mapRoot, facts, palette);

  async function look(index) {
    chosen = index;
    const picker = document.getElementById("run");
    if (picker) picker.value = String(index);
    for (const part of document.querySelectorAll("[data-run]")) part.hidden = Number(part.dataset.run) !== index;
    drawKeys();
    if (map) {
      try { await map.show(index); }
      catch (problem) {
        mapRoot.textContent = "This browser cannot unpack the cluster map; one from 2023 or later can.";
        console.warn(problem);
      }
    }
    await drawAll();
  }

  document.getElementById("run")?.addEventListener("change", event => look(Number(event.target.value)));
  for (const item of document.querySelectorAll("[data-key]")) item.addEventListener("click", () => look(Number(item.dataset.key)));

  // --- light and dark, paper ---------------------------------------------------------------------------------

  function repaint() {
    drawKeys();
    map?.draw();
    return drawAll();
  }

  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    repaint();
  });
  system.addEventListener("change", () => { if (!root.dataset.theme) repaint(); });
  let before;
  addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; repaint(); });
  addEventListener("afterprint", () => { if (before) root.dataset.theme = before; else delete root.dataset.theme; repaint(); });

  // --- where the reader is -----------------------------------------------------------------------------------

  const links = new Map([...document.querySelectorAll(".bar nav a")].map(link => [link.getAttribute("href").slice(1), link]));
  const watch = new IntersectionObserver(entries => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const [anchor, link] of links) {
        if (anchor === entry.target.id) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const part of document.querySelectorAll("main section")) watch.observe(part);

  // A handle for tests and for the console: headway.map.at(t) counts what is in use at a time, in ticks.
  window.headway = {
    facts,
    ready: look(chosen),
    look,
    map: map && {
      at: time => { const { busy, jobs, down } = ClusterMap.stateAt(map.run, time); return { busy, jobs, down: down.length }; },
      go: time => map.go(time),
      get time() { return map.time; },
      get ticks() { return map.run.head.ticks; },
      get tick_s() { return map.run.head.tick_s; },
    },
  };
})();
