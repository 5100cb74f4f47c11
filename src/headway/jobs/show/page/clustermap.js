"use strict";
// The cluster map: unpacks what clustermap.py packed and draws every GPU of a run at one time. No library.

const ClusterMap = (() => {
  const MOVED_HERE = 8, MOVED_AWAY = 6, PREEMPTED = 4, SHARE = 1000;
  const ENDED = ["", "finished", "failed", "cancelled", "preempted", "evicted from its node", "moved on"];
  const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
  const COLOURS = 10, PLAY_S = 24, LANE = 10, MOST_OUTLINES = 80, MOST_ARCS = 12, LEAST_CELL = 2, LARGEST_CELL = 22;

  // --- unpacking ---------------------------------------------------------------------------------------------

  async function inflate(id) {
    const text = atob(document.getElementById(`payload-${id}`).textContent);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const data = new Uint8Array(await new Response(plain).arrayBuffer());
    const length = new DataView(data.buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
    const columns = {};
    let at = 4 + length;
    for (const [name, size] of Object.entries(head.columns)) columns[name] = data.subarray(at, at += size);
    return { head, columns };
  }

  function numbers(bytes, count) {
    const found = new Float64Array(count);
    for (let i = 0, at = 0; i < count; i++) {
      let value = 0, scale = 1, byte;
      do { byte = bytes[at++]; value += (byte & 127) * scale; scale *= 128; } while (byte > 127);
      found[i] = value;
    }
    return found;
  }

  function summed(values) {
    for (let i = 1; i < values.length; i++) values[i] += values[i - 1];
    return values;
  }

  const unfolded = values => values.map(value => (value % 2 ? -(value + 1) / 2 : value / 2));

  function workloadOf({ head, columns }) {
    const names = columns.names.length ? new TextDecoder().decode(columns.names).split("\n") : null;
    return {
      tenants: head.tenants, tick_s: head.tick_s,
      tenant: numbers(columns.tenant, head.jobs), milli: numbers(columns.milli, head.jobs),
      submit: summed(numbers(columns.submit, head.jobs)), name: job => (names && names[job]) || String(job),
    };
  }

  function runOf({ head, columns }, cluster, work) {
    const count = head.holds;
    const run = { head, cluster, work, count };
    run.start = summed(numbers(columns.start, count));
    run.end = numbers(columns.length, count).map((length, i) => (length ? run.start[i] + length : Infinity));
    run.job = Int32Array.from(summed(unfolded(numbers(columns.job, count))));
    run.flags = Uint8Array.from(numbers(columns.flags, count));
    const runs = numbers(columns.runs, count);
    run.firstRun = new Int32Array(count + 1);
    for (let i = 0; i < count; i++) run.firstRun[i + 1] = run.firstRun[i] + runs[i];
    const all = run.firstRun[count], gaps = numbers(columns.gaps, all);
    run.runLength = Int32Array.from(numbers(columns.lengths, all));
    run.runFirst = new Int32Array(all);
    for (let i = 0; i < count; i++) {
      for (let r = run.firstRun[i], at = 0; r < run.firstRun[i + 1]; r++) {
        run.runFirst[r] = at + gaps[r];
        at = run.runFirst[r] + run.runLength[r];
      }
    }
    run.down = [];
    for (let i = 0, flat = numbers(columns.down, varintCount(columns.down)); i < flat.length; i += 4) {
      const [node, since, length, how] = flat.slice(i, i + 4);
      run.down.push({ node, since, until: length ? since + length : Infinity, how });
    }
    return indexed(run);
  }

  function varintCount(bytes) {
    let count = 0;
    for (const byte of bytes) count += byte < 128;
    return count;
  }

  // For each GPU its holds in order of time: what holds it at any time is then one binary search away.
  function indexed(run) {
    const { cluster, count } = run;
    const size = new Int32Array(cluster.gpus + 1);
    const each = (hold, visit) => {
      for (let r = run.firstRun[hold]; r < run.firstRun[hold + 1]; r++)
        for (let gpu = run.runFirst[r], last = gpu + run.runLength[r]; gpu < last; gpu++) visit(gpu);
    };
    for (let hold = 0; hold < count; hold++) each(hold, gpu => size[gpu + 1]++);
    for (let gpu = 0; gpu < cluster.gpus; gpu++) size[gpu + 1] += size[gpu];
    const fill = size.slice(), list = new Int32Array(size[cluster.gpus]);
    run.shared = new Uint8Array(cluster.gpus);
    for (let hold = 0; hold < count; hold++) {
      const part = run.work.milli[run.job[hold]] < SHARE;
      each(hold, gpu => { list[fill[gpu]++] = hold; if (part) run.shared[gpu] = 1; });
    }
    run.offset = size; run.list = list; run.each = each;
    if (run.shared.includes(1)) {
      run.latest = new Float64Array(list.length);
      for (let gpu = 0; gpu < cluster.gpus; gpu++)
        for (let i = size[gpu], latest = 0; i < size[gpu + 1]; i++) run.latest[i] = latest = Math.max(latest, run.end[list[i]]);
    }
    run.before = new Int32Array(count).fill(-1);
    const lastOf = new Map();
    run.moves = []; run.stops = [];
    for (let hold = 0; hold < count; hold++) {
      const job = run.job[hold], previous = lastOf.get(job);
      if (previous !== undefined) run.before[hold] = previous;
      lastOf.set(job, hold);
      if (run.flags[hold] & MOVED_HERE) run.moves.push(run.start[hold]);
      if ((run.flags[hold] & 7) === PREEMPTED) run.stops.push(run.end[hold]);
    }
    run.stops.sort((a, b) => a - b);
    const marks = [...run.moves, ...run.down.filter(each => each.how === 1).map(each => each.since)];
    run.marks = [...new Set(marks)].sort((a, b) => a - b);
    return run;
  }

  function upTo(values, time, low = 0, high = values.length) {
    while (low < high) { const middle = (low + high) >> 1; if (values[middle] <= time) low = middle + 1; else high = middle; }
    return low;
  }

  // The holds of one GPU at a time: none, one, or several that share it.
  function holdsAt(run, gpu, time) {
    let low = run.offset[gpu], high = run.offset[gpu + 1];
    const first = low;
    while (low < high) { const middle = (low + high) >> 1; if (run.start[run.list[middle]] <= time) low = middle + 1; else high = middle; }
    const found = [];
    for (let i = low - 1; i >= first; i--) {
      if (run.end[run.list[i]] > time) found.push(run.list[i]);
      if (!run.shared[gpu] || run.latest[i] <= time) break;
    }
    return found.reverse();
  }

  function stateAt(run, time) {
    const holds = new Array(run.cluster.gpus), jobs = new Set();
    let busy = 0;
    for (let gpu = 0; gpu < run.cluster.gpus; gpu++) {
      holds[gpu] = holdsAt(run, gpu, time);
      if (holds[gpu].length) busy++;
      for (const hold of holds[gpu]) jobs.add(run.job[hold]);
    }
    const down = run.down.filter(each => each.since <= time && time < each.until);
    return { time, holds, busy, jobs: jobs.size, down };
  }

  // --- where things are drawn --------------------------------------------------------------------------------

  function clusterOf(told) {
    const nodes = told.nodes.map(([name, gpus, kind]) => ({ name, gpus, kind }));
    let gpus = 0;
    for (const node of nodes) {
      node.first = gpus;
      gpus += node.gpus;
      node.columns = node.gpus <= 8 ? Math.max(1, node.gpus) : node.gpus <= 64 ? 8 : Math.ceil(Math.sqrt(node.gpus * 2));
      node.rows = Math.max(1, Math.ceil(node.gpus / node.columns));
    }
    return { nodes, gpus, frame: told.frame };
  }

  function flow(items, width, gap) {
    let x = 0, y = 0, line = 0, right = 0;
    for (const item of items) {
      if (x > 0 && x + item.w > width) { x = 0; y += line + gap; line = 0; }
      item.x = x; item.y = y;
      x += item.w + gap;
      line = Math.max(line, item.h);
      right = Math.max(right, item.x + item.w);
    }
    return { w: right, h: y + line };
  }

  function placed(frame, cluster, cell, width, depth) {
    const pad = depth ? 6 : 0, top = depth && frame.name ? 18 : pad;
    const gap = frame.nodes ? Math.max(2, Math.round(cell * 0.4)) : 8;
    const room = Math.max(20, width - 2 * pad);
    let items, size;
    if (frame.nodes) {
      items = frame.nodes.map(node => ({ node, w: cluster.nodes[node].columns * cell, h: cluster.nodes[node].rows * cell }));
      size = flow(items, depth ? squarish(items, gap, room) : room, gap);
    } else {
      items = frame.frames.map(each => placed(each, cluster, cell, room, depth + 1));
      size = flow(items, room, gap);
    }
    return { frame, items, pad, top, depth, w: size.w + 2 * pad, h: size.h + top + pad };
  }

  // The width at which a rack looks like one: a little wider than high.
  function squarish(items, gap, room) {
    const widest = Math.max(...items.map(item => item.w)) + gap;
    let best = room, least = Infinity;
    for (let columns = 1; columns <= items.length && columns * widest - gap <= room; columns++) {
      const size = flow(items, columns * widest - gap, gap);
      const off = Math.abs(Math.log(size.w / size.h / 1.25));
      if (off < least) { least = off; best = columns * widest - gap; }
    }
    return best;
  }

  function layout(cluster, width, height) {
    const tried = cell => placed(cluster.frame, cluster, cell, width, 0);
    let low = LEAST_CELL, high = LARGEST_CELL;
    while (low < high) { const middle = (low + high + 1) >> 1; if (tried(middle).h <= height) low = middle; else high = middle - 1; }
    const whole = tried(low), frames = [];
    const walk = (box, x, y) => {
      if (box.depth) frames.push({ x, y, w: box.w, h: box.h, name: box.frame.name, kind: box.frame.kind, depth: box.depth });
      for (const item of box.items) {
        const left = x + box.pad + item.x, up = y + box.top + item.y;
        if (item.node === undefined) walk(item, left, up);
        else Object.assign(cluster.nodes[item.node], { x: left, y: up });
      }
    };
    walk(whole, 0, 0);
    return { cell: low, height: whole.h, frames };
  }

  // --- words -------------------------------------------------------------------------------------------------

  // A time since the run began; a date of the site's clock where the run has dates.
  function timeText(seconds, begins) {
    if (begins) {
      const when = new Date(Date.parse(begins) + Math.floor(seconds) * 1000);
      const day = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][when.getUTCDay()];
      return `${day} ${when.toISOString().slice(0, 19).replace("T", " ")}`;
    }
    const whole = Math.floor(seconds), two = value => String(value).padStart(2, "0");
    if (seconds < 60) return `${+seconds.toPrecision(4)} s`;
    const clock = `${two(Math.floor(whole / 3600) % 24)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
    return whole >= 86400 ? `day ${Math.floor(whole / 86400)}, ${clock}` : clock;
  }

  function spanText(seconds) {
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]])
      if (seconds >= 2 * size) return `${+(seconds / size).toPrecision(3)} ${unit}`;
    return seconds > 0 ? `${+seconds.toPrecision(2)} s` : "0 s";
  }

  // --- the map -----------------------------------------------------------------------------------------------

  class Drawing {
    constructor(root, facts, look) {
      Object.assign(this, { root, facts, look, time: 0, colour: "tenant", only: null, hover: null, loaded: new Map(), works: new Map() });
      const find = selector => root.querySelector(selector);
      this.cells = find(".map-cells"); this.line = find(".map-line"); this.slider = find("#map-time");
      this.tip = find(".map-tip"); this.now = find(".map-now"); this.key = find(".map-key"); this.playing = find("[data-do=play]");
      this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
      this.slider.addEventListener("keydown", event => this.pressed(event));
      this.cells.addEventListener("pointermove", event => this.over(event));
      this.cells.addEventListener("pointerleave", () => this.over(null));
      for (const button of root.querySelectorAll("[data-colour]")) button.addEventListener("click", () => this.paint(button.dataset.colour));
      this.playing.addEventListener("click", () => this.play());
      this.whole = find("[data-do=whole]");
      this.whole.addEventListener("click", () => this.extend(this.whole.getAttribute("aria-pressed") !== "true"));
      find("[data-do=back]").addEventListener("click", () => this.jump(-1));
      find("[data-do=forth]").addEventListener("click", () => this.jump(1));
      new ResizeObserver(() => this.resize()).observe(this.cells.parentElement);
    }

    async show(index) {
      const told = this.facts.maps[String(index)];
      this.root.hidden = !told;
      this.wanted = index;
      if (!told) return;
      if (!this.loaded.has(index)) {
        if (!this.works.has(told.workload)) this.works.set(told.workload, inflate(told.workload).then(workloadOf));
        const [work, packed] = await Promise.all([this.works.get(told.workload), inflate(told.payload)]);
        this.loaded.set(index, { ...runOf(packed, clusterOf(told.cluster), work), begins: told.begins });
      }
      if (this.wanted !== index) return;
      const seconds = this.run ? this.time * this.run.head.tick_s : null;
      this.run = this.loaded.get(index);
      this.only = null;
      const { ticks, shown } = this.run.head;
      this.whole.hidden = shown >= ticks;
      for (const way of ["back", "forth"]) this.root.querySelector(`[data-do=${way}]`).disabled = !this.run.marks.length;
      this.extend(shown >= ticks);
      this.resize();
      this.keys();
      this.go(seconds === null ? Math.round(busiest(this.run)) : Math.min(ticks, Math.round(seconds / this.run.head.tick_s)));
    }

    // The line goes to where nearly all is over, or to the very end.
    extend(whole) {
      const { ticks, shown } = this.run.head;
      this.whole.setAttribute("aria-pressed", String(whole));
      this.most = Math.max(1, whole ? ticks : shown);
      this.slider.max = this.most;
      this.stride = Math.max(1, Math.round(this.most / 500));
      if (this.state) this.go(this.time);
    }

    go(time) {
      if (time > this.most && this.most < this.run.head.ticks) { this.time = time; this.extend(true); return; }
      this.time = Math.max(0, Math.min(this.run.head.ticks, time));
      this.slider.value = this.time;
      this.state = stateAt(this.run, this.time);
      this.draw();
      this.tell();
    }

    jump(way) {
      const marks = this.run.marks, at = upTo(marks, this.time - (way < 0 ? 1 : 0));
      const mark = way > 0 ? marks[at] : marks[at - 1];
      if (mark !== undefined) this.go(mark);
    }

    pressed(event) {
      const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 20, PageDown: -20 }[event.key];
      if (event.key === " ") { event.preventDefault(); this.play(); }
      if (!way) return;
      event.preventDefault();
      if (event.shiftKey) this.jump(Math.sign(way)); else this.go(this.time + way * this.stride);
    }

    play() {
      const going = !this.since;
      this.since = going ? performance.now() : 0;
      this.playing.textContent = going ? "❚❚" : "▶";
      this.playing.setAttribute("aria-label", going ? "Pause" : "Play");
      if (!going) return;
      if (this.time >= this.most) this.time = 0;
      let exact = this.time;
      const step = stamp => {
        if (!this.since) return;
        exact = Math.min(this.most, exact + (stamp - this.since) / 1000 / PLAY_S * this.most);
        this.since = stamp;
        this.go(Math.round(exact));
        if (exact >= this.most) this.play(); else requestAnimationFrame(step);
      };
      requestAnimationFrame(stamp => { this.since = stamp; step(stamp); });
    }

    paint(colour) {
      this.colour = colour;
      for (const button of this.root.querySelectorAll("[data-colour]")) button.setAttribute("aria-pressed", String(button.dataset.colour === colour));
      this.keys();
      this.draw();
    }

    // Which colour is which tenant; pressing one shows it alone.
    keys() {
      const { tenants } = this.run.work;
      this.key.replaceChildren();
      this.key.hidden = this.colour !== "tenant" || tenants.length < 2;
      const shown = tenants.length > COLOURS ? COLOURS - 1 : tenants.length;
      const add = (text, colour, only) => {
        const item = document.createElement("li"), button = document.createElement("button"), swatch = document.createElement("i");
        button.type = "button";
        swatch.style.background = `var(--${colour})`;
        button.append(swatch, text);
        button.title = text;
        button.setAttribute("aria-pressed", "false");
        button.addEventListener("click", () => {
          const on = button.getAttribute("aria-pressed") !== "true";
          for (const other of this.key.querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
          button.setAttribute("aria-pressed", String(on));
          this.only = on ? only : null;
          this.draw();
        });
        item.append(button);
        this.key.append(item);
      };
      for (let i = 0; i < shown; i++) add(tenants[i] || "(no name)", `s${i}`, tenant => tenant === i);
      if (shown < tenants.length) add(`${tenants.length - shown} others`, "rest", tenant => tenant >= shown);
    }

    resize() {
      if (!this.run) return;
      const width = this.cells.parentElement.clientWidth;
      if (!width) return;
      const target = Math.max(300, Math.min(560, 0.52 * window.innerHeight, width < 600 ? 460 : 560));
      this.plan = layout(this.run.cluster, width, target);
      this.fit(this.cells, width, Math.ceil(this.plan.height) + 1);
      this.cells.style.height = `${Math.ceil(this.plan.height) + 1}px`;
      this.fit(this.line, this.line.parentElement.clientWidth, this.line.parentElement.clientHeight);
      this.draw();
    }

    fit(canvas, width, height) {
      const dense = window.devicePixelRatio || 1;
      canvas.width = Math.round(width * dense);
      canvas.height = Math.round(height * dense);
      canvas.getContext("2d").setTransform(dense, 0, 0, dense, 0, 0);
    }

    // --- drawing ---------------------------------------------------------------------------------------------

    draw() {
      if (!this.state || !this.plan) return;
      const look = this.look(), pen = this.cells.getContext("2d");
      const dark = look("dark") === "1";
      pen.clearRect(0, 0, this.cells.width, this.cells.height);
      pen.lineWidth = 1;
      pen.textBaseline = "middle";
      for (const frame of this.plan.frames) this.frame(pen, frame, look);
      const colours = this.colours(look, dark);
      for (const node of this.run.cluster.nodes) this.node(pen, node, colours, look);
      for (const each of this.state.down) this.hatch(pen, this.run.cluster.nodes[each.node], each.how, look("down"));
      this.moved(pen, look("ink"));
      if (this.hover !== null) this.outline(pen, this.hover, look("ink"), 2, []);
      this.track(look);
    }

    colours(look, dark) {
      const { work } = this.run;
      if (this.colour === "tenant") {
        const all = work.tenants.length, shown = all > COLOURS ? COLOURS - 1 : all, rest = look("rest");
        const palette = work.tenants.map((_, i) => (i < shown ? look(`s${i}`) : rest));
        return job => palette[work.tenant[job]];
      }
      const palette = ramp(dark ? 0.26 : 0.04, dark ? 1 : 0.9);
      return job => palette[Math.floor(((job * 0.6180339887) % 1) * palette.length)];
    }

    frame(pen, frame, look) {
      pen.strokeStyle = look("rule");
      pen.beginPath();
      pen.roundRect(frame.x + 0.5, frame.y + 0.5, frame.w - 1, frame.h - 1, 5);
      pen.stroke();
      if (!frame.name && frame.kind !== "partition") return;
      pen.fillStyle = look(frame.depth === 1 ? "ink" : "muted");
      pen.font = `${frame.depth === 1 ? 600 : 400} 11px system-ui, sans-serif`;
      let text = frame.kind === "partition" ? frame.name || "no partition" : frame.name;
      if (pen.measureText(text).width > frame.w - 12 && text.startsWith(frame.kind)) text = text.slice(frame.kind.length);
      pen.fillText(clipped(pen, text, frame.w - 12), frame.x + 6, frame.y + 10);
    }

    node(pen, node, colours, look) {
      const { cell } = this.plan, gap = cell >= 5 ? 1 : 0, inner = cell - gap;
      if (!node.gpus) {
        pen.strokeStyle = look("faint");
        pen.strokeRect(node.x + 0.5, node.y + 0.5, inner - 1, inner - 1);
        if (inner < 5) return;
        pen.beginPath();
        pen.moveTo(node.x + 1, node.y + inner - 1);
        pen.lineTo(node.x + inner - 1, node.y + 1);
        pen.stroke();
        return;
      }
      const { holds } = this.state, { job, work } = this.run;
      for (let i = 0; i < node.gpus; i++) {
        const x = node.x + (i % node.columns) * cell, y = node.y + Math.floor(i / node.columns) * cell;
        const here = holds[node.first + i];
        const one = here.length === 1 && work.milli[job[here[0]]] >= SHARE;
        if (!one) { pen.globalAlpha = 1; pen.fillStyle = look("free"); pen.fillRect(x, y, inner, inner); }
        if (!here.length) continue;
        let low = y + inner;
        for (const hold of here) {
          const part = Math.min(SHARE, work.milli[job[hold]]) / SHARE, high = inner * part;
          const joined = one && (i + 1) % node.columns && i + 1 < node.gpus && holds[node.first + i + 1][0] === hold;
          pen.globalAlpha = this.only && !this.only(work.tenant[job[hold]]) ? 0.13 : 1;
          pen.fillStyle = colours(job[hold]);
          pen.fillRect(x, low - high, joined ? cell : inner, high);
          low -= high;
        }
      }
      pen.globalAlpha = 1;
    }

    hatch(pen, node, how, colour) {
      const { cell } = this.plan, w = node.columns * cell, h = node.rows * cell, step = how === 1 ? 4 : 7;
      pen.save();
      pen.beginPath();
      pen.rect(node.x - 1, node.y - 1, w + 1, h + 1);
      pen.clip();
      pen.strokeStyle = colour;
      pen.lineWidth = how === 1 ? 1.6 : 1;
      pen.beginPath();
      for (let at = -h; at < w + h; at += step) {
        if (how === 1) { pen.moveTo(node.x + at, node.y + h); pen.lineTo(node.x + at + h, node.y); }
        else { pen.moveTo(node.x + at, node.y); pen.lineTo(node.x + at + h, node.y + h); }
      }
      pen.stroke();
      pen.strokeRect(node.x - 0.5, node.y - 0.5, w, h);
      pen.restore();
    }

    // Jobs that moved within the last stride: where they are, where they were, and a line between.
    moved(pen, colour) {
      const { run, time } = this, since = time - Math.max(1, this.stride * 2);
      let drawn = 0;
      const many = upTo(run.moves, time) - upTo(run.moves, since) > MOST_ARCS;
      for (let hold = upTo(run.start, time) - 1; hold >= 0 && run.start[hold] > since && drawn < MOST_OUTLINES; hold--) {
        if (!(run.flags[hold] & MOVED_HERE) || run.end[hold] <= time) continue;
        drawn++;
        const before = run.before[hold];
        const here = this.outline(pen, hold, colour, 2, []);
        if (before < 0 || (run.flags[before] & 7) !== MOVED_AWAY) continue;
        const there = this.outline(pen, before, colour, 1.5, [3, 2]);
        if (!here || !there || many) continue;
        pen.strokeStyle = colour;
        pen.globalAlpha = 0.55;
        pen.lineWidth = 1.2;
        pen.beginPath();
        pen.moveTo(there.x, there.y);
        pen.quadraticCurveTo((there.x + here.x) / 2, Math.min(there.y, here.y) - 18, here.x, here.y);
        pen.stroke();
        pen.globalAlpha = 1;
      }
    }

    // Around the GPUs of a hold, row by row; gives the middle of the first of them.
    outline(pen, hold, colour, width, dash) {
      const { run, plan: { cell } } = this, rows = new Map();
      run.each(hold, gpu => {
        const node = this.nodeOf(gpu), i = gpu - node.first, row = Math.floor(i / node.columns), key = `${node.first}:${row}`;
        const x = node.x + (i % node.columns) * cell, found = rows.get(key);
        if (found) found.to = x + cell; else rows.set(key, { from: x, to: x + cell, y: node.y + row * cell });
      });
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.setLineDash(dash);
      let first = null;
      for (const { from, to, y } of rows.values()) {
        pen.strokeRect(from - 0.5, y - 0.5, to - from, cell);
        first ||= { x: (from + to) / 2, y: y + cell / 2 };
      }
      pen.setLineDash([]);
      return first;
    }

    nodeOf(gpu) {
      const { nodes } = this.run.cluster;
      let low = 0, high = nodes.length - 1;
      while (low < high) { const middle = (low + high + 1) >> 1; if (nodes[middle].first <= gpu) low = middle; else high = middle - 1; }
      return nodes[low];
    }

    // --- the line under the map ------------------------------------------------------------------------------

    track(look) {
      const pen = this.line.getContext("2d"), { run } = this, { head } = run;
      const wide = this.line.parentElement.clientWidth, high = this.line.parentElement.clientHeight;
      const lanes = [["failures", run.down.filter(each => each.how === 1), look("s1")], ["moves", run.moves, look("s0")], ["preemptions", run.stops, look("rest")]]
        .filter(([, found]) => found.length);
      const floor = high - lanes.length * LANE - 2;
      pen.clearRect(0, 0, this.line.width, this.line.height);
      const x = i => middle(head, i) / this.most * wide;
      const draw = (values, most) => values.forEach((value, i) => pen.lineTo(x(i), floor - value / most * (floor - 12)));
      pen.fillStyle = look("free");
      pen.fillRect(0, 0, wide, floor);
      pen.fillStyle = look("run");
      pen.globalAlpha = 0.32;
      pen.beginPath();
      pen.moveTo(0, floor);
      draw(head.busy, Math.max(1, run.cluster.gpus));
      pen.lineTo(x(head.busy.length - 1), floor);
      pen.fill();
      pen.globalAlpha = 1;
      const queue = Math.max(...head.waiting);
      if (queue > 0) {
        pen.strokeStyle = look("wait");
        pen.lineWidth = 1.4;
        pen.beginPath();
        draw(head.waiting, queue);
        pen.stroke();
      }
      pen.font = "10px system-ui, sans-serif";
      pen.textBaseline = "top";
      pen.fillStyle = look("muted");
      pen.fillText(`▮ GPUs in use${queue > 0 ? `   — jobs waiting, up to ${Math.round(queue).toLocaleString("en")}` : ""}`, 4, 2);
      lanes.forEach(([name, found, colour], i) => this.lane(pen, name, found, colour, floor + 2 + i * LANE, wide, look));
    }

    lane(pen, name, found, colour, y, wide, look) {
      const columns = new Map();
      for (const each of found) {
        const at = Math.round((each.since ?? each) / this.most * (wide - 2));
        if (at > wide) continue;
        columns.set(at, (columns.get(at) || 0) + 1);
      }
      const top = Math.max(...columns.values());
      pen.fillStyle = colour;
      for (const [at, count] of columns) {
        pen.globalAlpha = 0.35 + 0.65 * count / top;
        pen.fillRect(at, y, name === "failures" ? 2.5 : 1.5, LANE - 2);
      }
      pen.globalAlpha = 1;
      pen.font = "9px system-ui, sans-serif";
      pen.textBaseline = "top";
      const width = pen.measureText(name).width + 6;
      pen.fillStyle = look("card");
      pen.globalAlpha = 0.8;
      pen.fillRect(0, y, width, LANE - 1);
      pen.globalAlpha = 1;
      pen.fillStyle = look("muted");
      pen.fillText(name, 2, y);
    }

    // --- telling ---------------------------------------------------------------------------------------------

    tell() {
      const { run, state } = this, { head } = run;
      const bucket = stretch(head, this.time);
      const failed = state.down.filter(each => each.how === 1).length, drained = state.down.length - failed;
      const say = value => value.toLocaleString("en");
      const parts = [`${say(state.busy)} of ${say(run.cluster.gpus)} GPUs in use`, `${say(state.jobs)} ${state.jobs === 1 ? "job" : "jobs"}`, `about ${say(Math.round(head.waiting[bucket]))} waiting`];
      if (failed) parts.push(`${say(failed)} ${failed === 1 ? "node" : "nodes"} failed`);
      if (drained) parts.push(`${say(drained)} drained`);
      const when = timeText(this.time * head.tick_s, run.begins), clock = document.createElement("b");
      clock.textContent = when;
      this.now.replaceChildren(clock, ...parts.map(text => Object.assign(document.createElement("span"), { textContent: text })));
      this.slider.setAttribute("aria-valuetext", `${when}: ${parts.join(", ")}`);
      this.cells.setAttribute("aria-label", `The GPUs of the cluster at ${when}: ${parts.join(", ")}`);
    }

    over(event) {
      const found = event && this.state && this.hit(event.offsetX, event.offsetY);
      const hold = found && found.hold !== undefined ? found.hold : null;
      if (hold !== this.hover) { this.hover = hold; this.draw(); }
      this.tip.hidden = !found;
      if (!found) return;
      this.tip.replaceChildren(...this.about(found).map((text, i) => Object.assign(document.createElement(i ? "span" : "b"), { textContent: text })));
      const room = this.cells.parentElement.clientWidth, left = event.offsetX + 16;
      this.tip.style.left = `${left + this.tip.offsetWidth > room ? Math.max(0, event.offsetX - this.tip.offsetWidth - 12) : left}px`;
      this.tip.style.top = `${event.offsetY + 14}px`;
    }

    hit(x, y) {
      const { cell } = this.plan;
      for (const node of this.run.cluster.nodes) {
        if (x < node.x || y < node.y || x >= node.x + node.columns * cell || y >= node.y + node.rows * cell) continue;
        const i = Math.floor((y - node.y) / cell) * node.columns + Math.floor((x - node.x) / cell);
        if (node.gpus && i >= node.gpus) return null;
        const here = node.gpus ? this.state.holds[node.first + i] : [];
        const depth = (1 - ((y - node.y) % cell) / cell) * SHARE;
        let sum = 0;
        const hold = here.find(each => (sum += this.run.work.milli[this.run.job[each]]) >= depth) ?? here[here.length - 1];
        return { node, gpu: i, here, hold };
      }
      return null;
    }

    about({ node, gpu, here, hold }) {
      const { run, state } = this, { work, head } = run, lines = [];
      const out = state.down.find(each => run.cluster.nodes[each.node] === node);
      const place = node.gpus ? `${node.name}, GPU ${gpu}${node.kind === "gpu" ? "" : ` (${node.kind})`}` : `${node.name}, no GPUs`;
      if (hold === undefined) lines.push(out ? (out.how === 1 ? "node failed" : "node drained") : "free", place);
      else {
        const job = run.job[hold], milli = work.milli[job], nodes = new Set();
        let gpus = 0;
        run.each(hold, each => { gpus++; nodes.add(this.nodeOf(each)); });
        const since = run.start[hold] * head.tick_s, first = this.firstStart(hold) * head.tick_s;
        const size = milli < SHARE ? `${milli / 10} % of a GPU` : `${gpus} ${gpus === 1 ? "GPU" : "GPUs"}${nodes.size > 1 ? ` on ${nodes.size} nodes` : ""}`;
        lines.push(`job ${work.name(job)}`, `${work.tenants[work.tenant[job]]} · ${size}`, place);
        lines.push(`${run.flags[hold] & MOVED_HERE ? "moved here" : "here since"} ${timeText(since, run.begins)}, ${spanText(state.time * head.tick_s - since)} ago`);
        const waited = first - work.submit[job] * work.tick_s;
        lines.push(waited > 0 ? `waited ${spanText(waited)} for its first start` : "started at once");
        const how = ENDED[run.flags[hold] & 7];
        lines.push(how ? `${how} ${spanText((run.end[hold] - state.time) * head.tick_s)} from now` : "still running when the run ends");
        if (here.length > 1) lines.push(`${here.length} jobs share this GPU`);
      }
      if (hold !== undefined && out) lines.push(out.how === 1 ? "node failed" : "node takes no new jobs");
      return lines;
    }

    firstStart(hold) {
      while (this.run.before[hold] >= 0) hold = this.run.before[hold];
      return this.run.start[hold];
    }
  }

  // The middle of a stretch of time that something was averaged over; and the stretch that a time lies in.
  function middle({ split, shown, ticks, busy }, i) {
    return i < split ? (i + 0.5) / split * shown : shown + (i - split + 0.5) / (busy.length - split) * (ticks - shown);
  }

  function stretch({ split, shown, ticks, busy }, time) {
    if (time < shown || busy.length === split) return Math.min(split - 1, Math.floor(time / Math.max(1, shown) * split));
    return Math.min(busy.length - 1, split + Math.floor((time - shown) / Math.max(1, ticks - shown) * (busy.length - split)));
  }

  // A run opens where most is going on, not at its empty beginning.
  function busiest(run) {
    const weigh = run.head.busy.map((value, i) => value + (run.head.waiting[i] > 0 ? 0.001 : 0));
    return middle(run.head, weigh.indexOf(Math.max(...weigh)));
  }

  function clipped(pen, text, room) {
    if (pen.measureText(text).width <= room) return text;
    let cut = text;
    while (cut && pen.measureText(`${cut}…`).width > room) cut = cut.slice(0, -1);
    return cut ? `${cut}…` : "";
  }

  function ramp(from, to) {
    const part = (hex, i) => parseInt(hex.slice(1 + 2 * i, 3 + 2 * i), 16);
    return Array.from({ length: 64 }, (_, i) => {
      const at = (from + (to - from) * i / 63) * (CIVIDIS.length - 1), low = Math.min(CIVIDIS.length - 2, Math.floor(at));
      const mix = [0, 1, 2].map(c => Math.round(part(CIVIDIS[low], c) + (part(CIVIDIS[low + 1], c) - part(CIVIDIS[low], c)) * (at - low)));
      return `rgb(${mix})`;
    });
  }

  return { Drawing, stateAt };
})();
