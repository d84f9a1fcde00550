"use strict";
// Shows what the page holds. All texts are put in as texts; nothing is fetched, and nothing is kept.
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main");

function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "class") node.className = value;
    else node[name] = value;
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}
function section(title, ...children) {
  const node = make("section", {}, make("h2", { textContent: title }), ...children);
  main.append(node);
  return node;
}
function table(head, rows, numbers = [], caption = "") {
  const cell = (tag, text, i) => make(tag, { class: numbers.includes(i) ? "n" : "" }, typeof text === "string" ? text : text ?? "");
  return make("div", { class: "scroll" }, make("table", {},
    caption ? make("caption", { textContent: caption }) : null,
    make("thead", {}, make("tr", {}, ...head.map((text, i) => cell("th", text, i)))),
    make("tbody", {}, ...rows.map(row => make("tr", {}, ...row.map((text, i) => cell("td", text, i)))))));
}
function seconds(s) {
  if (!isFinite(s)) return "-";
  const a = Math.abs(s);
  return a >= 100 ? `${s.toFixed(0)} s` : a >= 1 ? `${s.toFixed(2)} s` : a >= 1e-3 ? `${(s * 1e3).toFixed(a >= 0.1 ? 0 : 1)} ms` : `${(s * 1e6).toFixed(0)} µs`;
}
function unpacked(text, Type) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Type(bytes.buffer, 0, bytes.length / Type.BYTES_PER_ELEMENT);
}
const color = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
function rgb(name) {
  const pen = make("canvas", { width: 1, height: 1 }).getContext("2d");
  pen.fillStyle = name;
  pen.fillRect(0, 0, 1, 1);
  return pen.getImageData(0, 0, 1, 1).data;
}
const tip = document.getElementById("tip");
function tell(event, text) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - box.width - 8)}px`;
  tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18}px`;
}
// A canvas that is drawn anew when its size or the reader's colours change.
const drawn = [];
function plot(height, draw, about) {
  const canvas = make("canvas", { tabIndex: 0 });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", about);
  canvas.style.height = `${height}px`;
  const again = () => {
    const width = canvas.clientWidth, scale = devicePixelRatio || 1;
    if (!width) return;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.clearRect(0, 0, width, height);
    draw(pen, width, height);
  };
  drawn.push(again);
  return [canvas, again];
}
function drawAll() { for (const again of drawn) again(); }
addEventListener("resize", drawAll);
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
function legend(...pairs) {
  return make("div", { class: "legend" }, ...pairs.map(([name, text]) => {
    const mark = make("i");
    mark.style.background = `var(--${name})`;
    return make("span", {}, mark, text);
  }));
}

// ---- head ----
document.querySelector("h1").textContent = data.job || "job";
const hosts = new Set(Object.values(data.hosts));
document.querySelector(".about").textContent = [
  `${data.ranks} ranks`, hosts.size ? `${hosts.size} host${hosts.size > 1 ? "s" : ""}` : "", `whichrank ${data.version}`,
].filter(Boolean).join(" · ");
const culprits = new Set(data.incidents.flatMap(i => [...i.culprits, ...i.candidates].map(c => c.rank)));

// ---- incidents ----
if (!data.incidents.length) main.append(make("p", { class: "nothing", textContent: "No incident." }));
for (const incident of data.incidents) {
  const named = [...incident.culprits, ...incident.candidates];
  const node = make("article", { class: `incident ${incident.severity}` },
    make("h2", { textContent: incident.headline }), make("p", { textContent: incident.paragraph }));
  if (named.length) {
    node.append(table([incident.culprits.length ? "culprit" : "candidate", "host", "process", "confidence", "why"], named.slice(0, 64).map(c => [
      `rank ${c.rank}`, c.host ?? "-", c.pid ? String(c.pid) : "-", `${Math.round(c.confidence * 100)} %`, c.why]), [3]));
  }
  if (incident.links.length) {
    node.append(table(["link from", "to", "end at fault", "scope"], incident.links.slice(0, 64).map(l => [
      `rank ${l.src}`, `rank ${l.dst}`, l.end ?? "not known", (l.scope ?? "").replace("_", " ")])));
  }
  if (incident.evidence.length) {
    node.append(make("details", { open: true }, make("summary", { textContent: "Evidence" }),
      table(["what", "value", "where"], incident.evidence.map(e => [
        e.what, `${typeof e.value === "number" ? Math.round(e.value * 1000) / 1000 : e.value}${e.unit ? ` ${e.unit}` : ""}`, e.where ?? ""]))));
  }
  if (incident.next.length) node.append(make("h3", { textContent: "Next" }), make("pre", { textContent: incident.next.join("\n") }));
  if (!incident.complete) node.append(make("p", { class: "soft", textContent: "Of some ranks nothing was read: what is said of them is a guess at best." }));
  main.append(node);
}

// ---- who waits for whom ----
if (data.waits.length) {
  const steps = new Map();
  for (const one of data.waits) {
    const at = one.distance || Infinity;
    steps.set(at, [...(steps.get(at) ?? []), one]);
  }
  const order = [...steps.keys()].sort((a, b) => b - a);
  const chain = make("div", { class: "chain" });
  for (const at of order) {
    const column = make("div", { class: "step" });
    for (const one of steps.get(at).slice(0, 8)) {
      column.append(make("div", { class: "box" },
        make("b", { textContent: `${one.count} rank${one.count > 1 ? "s" : ""}: ${one.ranks}` }),
        `wait in ${one.what}${one.operations > 1 ? ` (${one.operations} operations)` : ""} for ${one.targets === 1 ? "rank" : "ranks"} ${one.for}`));
    }
    if (steps.get(at).length > 8) column.append(make("p", { class: "soft", textContent: `and ${steps.get(at).length - 8} more operations` }));
    chain.append(column, make("div", { class: "arrow", textContent: "→" }));
  }
  const ends = make("div", { class: "step" });
  const named = [...culprits];
  ends.append(make("div", { class: "box end" }, make("b", { textContent: named.length ? `rank${named.length > 1 ? "s" : ""} ${named.slice(0, 16).join(", ")}` : "nobody is named" }),
    data.incidents[0]?.culprits.length ? "at fault" : "candidates, by what is known"));
  chain.append(ends);
  section("Who waits for whom", make("p", { class: "soft", textContent: "From those who wait for others that wait, to the end of the chain." }), chain);
}

// ---- lanes ----
const lanes = data.lanes;
if (lanes.count) {
  const rank = unpacked(lanes.rank, Uint32Array), comm = unpacked(lanes.comm, Uint32Array), kind = unpacked(lanes.kind, Uint8Array);
  const counter = unpacked(lanes.counter, Uint32Array), start = unpacked(lanes.start, Float32Array);
  const lasted = unpacked(lanes.lasted, Float32Array), waited = unpacked(lanes.waited, Float32Array);
  const ranks = [...new Set([...rank, ...culprits])].sort((a, b) => a - b);  // who is named may have none
  const row = new Map(ranks.map((r, i) => [r, i]));
  let last = 0;
  for (let i = 0; i < lanes.count; i++) last = Math.max(last, start[i] + lasted[i]);
  // Begin where the last operations do: what came long before says little, and can be reached by zooming out.
  const onset = data.incidents.length && data.incidents[0].onset && lanes.zero_utc_s !== null ? Date.parse(data.incidents[0].onset) / 1000 - lanes.zero_utc_s : null;
  const focus = onset !== null && onset > 0 && onset <= last ? onset : last;
  let view = [Math.max(0, Math.min(focus - 1, last - 4)), last];
  const whole = [0, last], first = [...view];
  const lane = Math.max(1, Math.min(16, Math.floor(640 / ranks.length)));
  const left = 62, height = ranks.length * lane + 26;
  const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
  const marks = new Uint8Array(lanes.count);
  for (const incident of data.incidents) {
    if (!incident.round) continue;
    const [on, number] = incident.round, message = ["send", "recv"].includes(incident.op.kind);
    for (let i = 0; i < lanes.count; i++) {
      if (comm[i] === on && counter[i] === number && ((kind[i] & 127) >= lanes.first_message) === message) marks[i] = 1;
    }
  }
  let picked = -1;
  const round = i => picked >= 0 && comm[i] === comm[picked] && counter[i] === counter[picked] && (kind[i] & 127) === (kind[picked] & 127);
  const [canvas, again] = plot(height, (pen, width) => {
    const x = t => left + (t - view[0]) / (view[1] - view[0]) * (width - left - 4);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(14 / lane));
    ranks.forEach((r, i) => {
      const named = culprits.has(r);
      if (i % every && !named) return;
      pen.fillStyle = named ? color("culprit") : color("soft");
      if (named && lane < 12) { pen.fillRect(left - 6, i * lane, 4, lane); if (i % every) return; }
      pen.fillText(`rank ${r}`, 2, i * lane + lane / 2);
    });
    const hues = lanes.comms.map((_, at) => `hsl(${(at * 67 + 205) % 360} 45% ${dark() ? 62 : 46}%)`);
    const unended = color("open"), ink = color("notice");
    for (let i = 0; i < lanes.count; i++) {
      const a = x(start[i]), b = x(start[i] + lasted[i]);
      if (b < left || a > width) continue;
      const from = Math.max(a, left), to = Math.min(Math.max(b, a + 1), width - 2), y = row.get(rank[i]) * lane;
      pen.fillStyle = kind[i] & 128 ? unended : hues[comm[i]];
      pen.globalAlpha = round(i) || picked < 0 ? 1 : 0.25;
      pen.fillRect(from, y + (lane > 3 ? 1 : 0), Math.max(1, to - from), lane > 3 ? lane - 2 : lane);
      if (marks[i]) {
        pen.fillStyle = ink;
        pen.fillRect(from, y, Math.max(2, to - from), Math.min(2, lane));
      }
    }
    pen.globalAlpha = 1;
    if (onset !== null && onset >= view[0] && onset <= view[1]) {
      pen.strokeStyle = color("alert");
      pen.setLineDash([4, 3]);
      pen.beginPath(); pen.moveTo(x(onset), 0); pen.lineTo(x(onset), ranks.length * lane); pen.stroke();
      pen.setLineDash([]);
    }
    pen.fillStyle = color("soft");
    const span = view[1] - view[0], raw = span / 8, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= raw);
    for (let t = Math.ceil(view[0] / step) * step; t <= view[1]; t += step) {
      const at = x(t);
      pen.fillRect(at, ranks.length * lane + 2, 1, 5);
      if (at < width - 48) pen.fillText(`${+t.toPrecision(6)} s`, at + 3, ranks.length * lane + 15);
    }
  }, "Operations of each rank over time");
  const under = event => {
    const box = canvas.getBoundingClientRect(), width = box.width;
    const t = view[0] + (event.clientX - box.left - left) / (width - left - 4) * (view[1] - view[0]);
    const at = ranks[Math.floor((event.clientY - box.top) / lane)], slack = (view[1] - view[0]) / width * 2;
    let best = -1;
    for (let i = 0; i < lanes.count; i++) {
      if (rank[i] === at && start[i] - slack <= t && t <= start[i] + lasted[i] + slack && (best < 0 || lasted[i] < lasted[best])) best = i;
    }
    return best;
  };
  const words = i => `rank ${rank[i]}: ${lanes.kinds[kind[i] & 127]}${counter[i] < 2 ** 30 ? ` #${counter[i]}` : ""} on ${lanes.comms[comm[i]]}\n` +
    (kind[i] & 128 ? "has not ended" : `took ${seconds(lasted[i])}${waited[i] ? `, blocked for ${seconds(waited[i])}` : ""}`);
  canvas.addEventListener("mousemove", event => { const i = under(event); tell(event, i < 0 ? "" : words(i)); });
  canvas.addEventListener("mouseleave", event => tell(event, ""));
  canvas.addEventListener("click", event => { const i = under(event); picked = i >= 0 && i !== picked && !round(i) ? i : -1; again(); });
  const zoom = (factor, middle = (view[0] + view[1]) / 2) => {
    const from = Math.max(whole[0], middle - (middle - view[0]) * factor), to = Math.min(whole[1], middle + (view[1] - middle) * factor);
    if (to - from > 1e-6) { view = [from, to]; again(); }
  };
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, view[0] + (event.clientX - box.left - left) / (box.width - left - 4) * (view[1] - view[0]));
  }, { passive: false });
  const move = share => {
    const by = (view[1] - view[0]) * share, to = Math.min(whole[1], Math.max(view[1] + by, whole[0] + view[1] - view[0]));
    view = [to - (view[1] - view[0]), to];
    again();
  };
  canvas.addEventListener("keydown", event => {
    const act = { "+": () => zoom(0.8), "-": () => zoom(1.25), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), Escape: () => { picked = -1; again(); } }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  const press = (text, act) => make("button", { textContent: text, onclick: act });
  section("Operations of each rank",
    make("p", { class: "soft" }, "Colours are communicators. Click an operation to see its round on all ranks; Ctrl and the wheel zoom, arrow keys move."),
    make("div", { class: "legend" }, press("zoom in", () => zoom(0.5)), press("zoom out", () => zoom(2)), press("◀", () => move(-0.5)), press("▶", () => move(0.5)),
      press("all", () => { view = [...whole]; again(); }), press("as at first", () => { view = [...first]; picked = -1; again(); }),
      ...legend(["open", "has not ended"], ["culprit", "named"], ...(marks.includes(1) ? [["notice", "round of the verdict"]] : [])).childNodes),
    make("div", { class: "plot" }, canvas));
}

// ---- heat ----
const heat = data.heat;
if (heat.iterations.length) {
  const own = unpacked(heat.own, Float32Array), blocked = unpacked(heat.blocked, Float32Array), n = heat.iterations.length;
  const cell = Math.max(1, Math.min(16, Math.floor(480 / heat.ranks.length))), left = 62;
  const sorted = Float32Array.from(own).sort();
  const low = sorted[Math.floor(sorted.length * 0.05)], high = Math.max(sorted[Math.floor(sorted.length * 0.99)], low * 1.02 + 1e-9);
  const slow = Float32Array.from(blocked).sort()[Math.floor(blocked.length * 0.99)] || 1;
  const map = (values, from, to, name, title) => {
    const [canvas] = plot(heat.ranks.length * cell + 4, (pen, width) => {
      const step = (width - left) / n;
      pen.font = "11px system-ui, sans-serif";
      pen.textBaseline = "middle";
      const every = Math.max(1, Math.ceil(14 / cell));
      heat.ranks.forEach((r, i) => {
        if (i % every && !(culprits.has(r) && cell > 7)) return;
        pen.fillStyle = culprits.has(r) ? color("culprit") : color("soft");
        pen.fillText(`rank ${r}`, 2, i * cell + cell / 2);
      });
      // A pixel for each cell, then as large as it is shown: of large jobs there are half a million cells.
      const image = new ImageData(n, heat.ranks.length), [red, green, blue] = rgb(color(name));
      for (let at = 0; at < n * heat.ranks.length; at++) {
        image.data[4 * at] = red; image.data[4 * at + 1] = green; image.data[4 * at + 2] = blue;
        image.data[4 * at + 3] = 255 * (0.06 + 0.94 * Math.min(1, Math.max(0, (values[at] - from) / (to - from))));
      }
      const small = make("canvas", { width: n, height: heat.ranks.length });
      small.getContext("2d").putImageData(image, 0, 0);
      pen.imageSmoothingEnabled = false;
      pen.drawImage(small, left, 0, width - left, heat.ranks.length * cell);
      if (step > 4) for (let j = 1; j <= n; j++) pen.clearRect(left + j * step - 1, 0, 1, heat.ranks.length * cell);
      if (cell > 4) for (let i = 1; i <= heat.ranks.length; i++) pen.clearRect(left, i * cell - 1, width - left, 1);
    }, title);
    canvas.addEventListener("mousemove", event => {
      const box = canvas.getBoundingClientRect();
      const i = Math.floor((event.clientY - box.top) / cell), j = Math.floor((event.clientX - box.left - left) / ((box.width - left) / n));
      const ok = i >= 0 && i < heat.ranks.length && j >= 0 && j < n;
      tell(event, ok ? `rank ${heat.ranks[i]}, iteration ${heat.iterations[j]}\nown ${seconds(own[i * n + j])}, blocked ${seconds(blocked[i * n + j])}` : "");
    });
    canvas.addEventListener("mouseleave", event => tell(event, ""));
    return make("div", {}, make("h3", { textContent: title }), make("div", { class: "plot" }, canvas));
  };
  section("Iterations", make("p", { class: "soft", textContent: `Ranks down, the latest ${n} iterations across; darker is longer.` }),
    map(own, low, high, "own", `By itself: computing, loading data (${seconds(low)} to ${seconds(high)})`),
    map(blocked, 0, slow, "transfer", `Blocked in operations (up to ${seconds(slow)})`));
}

// ---- where time goes ----
if (data.times.length) {
  const most = Math.max(...data.times.map(t => t[1] + t[2] + t[3]));
  const shown = data.times.length > 512 ? data.times.filter((t, i) => culprits.has(t[0]) || i % Math.ceil(data.times.length / 512) === 0) : data.times;
  const bar = Math.max(2, Math.min(18, Math.floor(560 / shown.length))), left = 62;
  const [canvas] = plot(shown.length * bar + 4, (pen, width) => {
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(14 / bar));
    shown.forEach(([r, ...parts], i) => {
      if (i % every === 0 || (culprits.has(r) && bar > 7)) { pen.fillStyle = culprits.has(r) ? color("culprit") : color("soft"); pen.fillText(`rank ${r}`, 2, i * bar + bar / 2); }
      let at = left;
      ["own", "transfer", "waiting"].forEach((name, k) => {
        const w = parts[k] / most * (width - left - 4);
        pen.fillStyle = color(name);
        pen.fillRect(at, i * bar + 1, w, Math.max(1, bar - 2));
        at += w;
      });
    });
  }, "Where an iteration goes for each rank");
  canvas.addEventListener("mousemove", event => {
    const t = shown[Math.floor((event.clientY - canvas.getBoundingClientRect().top) / bar)];
    tell(event, t ? `rank ${t[0]}\nby itself ${seconds(t[1])}, in transfers ${seconds(t[2])}, waiting ${seconds(t[3])}` : "");
  });
  canvas.addEventListener("mouseleave", event => tell(event, ""));
  section("Where an iteration goes", legend(["own", "by itself"], ["transfer", "in transfers"], ["waiting", "waiting for others"]), make("div", { class: "plot" }, canvas));
}

// ---- links ----
if (data.links.length) {
  const ends = [...new Set(data.links.flatMap(l => [l[0], l[1]]))].sort((a, b) => a - b);
  const parts = [];
  if (ends.length <= 64) {
    const cell = Math.max(9, Math.min(30, Math.floor(620 / ends.length))), at = new Map(ends.map((r, i) => [r, i])), left = 62, top = 22;
    const rates = data.links.map(l => l[2]), high = Math.log(Math.max(...rates)), low = Math.log(Math.min(...rates)) - 0.5;
    const [canvas] = plot(ends.length * cell + top + 4, pen => {
      pen.font = "11px system-ui, sans-serif";
      pen.textBaseline = "middle";
      pen.fillStyle = color("soft");
      ends.forEach((r, i) => { pen.fillText(`from ${r}`, 2, top + i * cell + cell / 2); if (cell > 14 || i % 3 === 0) pen.fillText(String(r), left + i * cell + 2, 11); });
      for (const [src, dst, rate, best] of data.links) {
        const worse = best && rate < 0.5 * best;
        pen.fillStyle = worse ? color("culprit") : color("own");
        pen.globalAlpha = worse ? 0.95 : 0.15 + 0.75 * (Math.log(rate) - low) / (high - low);
        pen.fillRect(left + at.get(dst) * cell, top + at.get(src) * cell, cell - 1, cell - 1);
      }
      pen.globalAlpha = 1;
    }, "Rates from rank to rank");
    canvas.addEventListener("mousemove", event => {
      const box = canvas.getBoundingClientRect();
      const src = ends[Math.floor((event.clientY - box.top - top) / cell)], dst = ends[Math.floor((event.clientX - box.left - left) / cell)];
      const one = data.links.find(l => l[0] === src && l[1] === dst);
      tell(event, one ? `from rank ${src} to rank ${dst}: ${one[4]}${one[3] ? `, ${Math.round(one[2] / one[3] * 100)} % of its best` : ""}` : "");
    });
    canvas.addEventListener("mouseleave", event => tell(event, ""));
    parts.push(make("div", { class: "plot" }, canvas));
  }
  section("Transfers between nodes", make("p", { class: "soft", textContent: "From the rank of a row to that of a column. Red: less than half of the best that it was." }), ...parts,
    table(["from", "to", "rate", "of its best"], data.links.slice(0, 12).map(l => [`rank ${l[0]}`, `rank ${l[1]}`, l[4], l[3] ? `${Math.round(l[2] / l[3] * 100)} %` : "not known"]), [2, 3], "The slowest"));
}

// ---- operations ----
if (data.operations.length) {
  section("Operations that took longest", table(["operation", "on", "n", "in all", "median", "longest", "of rank", "blocked"],
    data.operations.map(([comm, kind, n, total, median, longest, rank, waited]) => [kind, comm, String(n), seconds(total), seconds(median), seconds(longest), String(rank), waited ? seconds(waited) : "-"]), [2, 3, 4, 5, 6, 7]));
}

// ---- stacks ----
const stacks = Object.entries(data.stacks);
if (stacks.length) {
  section("Stacks", ...stacks.map(([rank, of]) => make("details", { open: culprits.has(+rank) }, make("summary", { textContent: `rank ${rank}` }),
    ...of.map(one => make("pre", { textContent: `${one.thread}${one.gil ? ", holds the GIL" : ""}\n  ${one.frames.join("\n  ")}` })))));
}

// ---- what was read ----
if (data.notes.length) {
  const notes = [...data.notes].sort((a, b) => (a.state === "read") - (b.state === "read"));
  section("What was read", make("details", {}, make("summary", { textContent: `${notes.length} files` }),
    table(["file", "format", "rank", "", ""], notes.slice(0, 512).map(n => [n.path, n.format || "-", n.rank === undefined ? "" : String(n.rank), n.state, n.what ?? ""]), [2])));
}
document.querySelector("footer").textContent = "Made by whichrank. This file holds all that it shows.";
drawAll();
