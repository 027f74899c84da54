"use strict";
// The page: controls, what is said of a row, of a selection, and of the map; the address bar keeps the view.

// An element; text is text, never markup.
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on") || name in element) element[name] = value; else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const $ = (id) => document.getElementById(id);
const charts = ABOUT.panes.map((pane) => pane.maps.map((about) => new Chart(about)));
const look = { layer: "", statistic: 0, ramp: "viridis", equal: false };
const state = { pair: 0, lasso: false, drawn: null, selection: null, told: 0 };
const panes = [];
const section = {};

document.title = $("title").textContent = ABOUT.title;
document.body.classList.toggle("two", charts.length > 1);

// ------------------------------------------------------------------------------------------------------ panes

ABOUT.panes.forEach((said, number) => {
  const home = $("panes").appendChild(make("section", { className: "pane" }));
  const pane = new Pane(home, said.title);
  Object.assign(pane, { number, said, pin: null, hover: null, lines: [], linked: null });
  if (charts.length > 1) home.append(make("div", { className: "name" }, said.title));
  pane.tip = home.appendChild(make("div", { className: "tip", hidden: true }));
  pane.onover = (context, colors) => drawMarks(pane, context, colors);
  pane.onmove = () => keepAddress();
  // (the address is not read again where other coordinates are chosen)
  pane.onfit = () => { if (!pane.placed) { pane.placed = true; readAddress(pane); } if (state.chosen) keepAddress(); };
  listen(pane);
  panes.push(pane);
});

function drawMarks(pane, context, colors) {
  const { points, i } = pane.pin || pane.linked || {};
  for (const spot of points ? pane.lines : []) {
    context.strokeStyle = colors.accent;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(...pane.toScreen(points.x[i], points.y[i]));
    context.lineTo(...pane.toScreen(spot.points.x[spot.i], spot.points.y[spot.i]));
    context.stroke();
    pane.mark(context, spot.points.x[spot.i], spot.points.y[spot.i], colors.accent, 3.5, 1.5);
  }
  const marks = [[pane.pin, colors.accent, 3], [pane.linked, colors.accent, 1.5], [pane.hover, colors.ink, 1.5]];
  for (const [spot, color, width] of marks) if (spot) pane.mark(context, spot.points.x[spot.i], spot.points.y[spot.i], color, pane.radius + 4, width);
  const area = state.drawn && state.drawn.pane === pane ? state.drawn.corners : state.selection && state.selection.pane === pane ? state.selection.area.corners : null;
  if (!area) return;
  context.strokeStyle = colors.accent;
  context.lineWidth = 1.5;
  context.setLineDash([5, 4]);
  context.beginPath();
  area.forEach(([x, y], i) => context[i ? "lineTo" : "moveTo"](...pane.toScreen(x, y)));
  context.closePath();
  context.stroke();
  context.setLineDash([]);
}

function listen(pane) {
  const pointers = new Map(), canvas = pane.over;
  let last = null, dragged = 0;
  const where = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const middle = () => { const all = [...pointers.values()]; return [0, 1].map((axis) => all.reduce((sum, one) => sum + one[axis], 0) / all.length); };
  const gap = () => { const [a, b] = [...pointers.values()]; return Math.hypot(a[0] - b[0], a[1] - b[1]); };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, where(event));
    if (pointers.size === 1) dragged = 0;
    last = { at: middle(), gap: pointers.size === 2 ? gap() : 0 };
    if (state.lasso && pointers.size === 1) state.drawn = { pane, corners: [pane.toSquare(...where(event))] };
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = where(event);
    if (!pointers.has(event.pointerId)) { hover(pane, ...at); return; }
    pointers.set(event.pointerId, at);
    const now = middle();
    dragged += Math.hypot(now[0] - last.at[0], now[1] - last.at[1]);
    if (state.drawn && pointers.size === 1) {
      state.drawn.corners.push(pane.toSquare(...at));
      pane.drawOver();
    } else if (dragged > 3) {
      pane.move(now[0] - last.at[0], now[1] - last.at[1]);
      if (pointers.size === 2) pane.magnify(gap() / (last.gap || gap()), ...now);
    }
    last = { at: now, gap: pointers.size === 2 ? gap() : 0 };
  });
  const end = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    if (pointers.size) { last = { at: middle(), gap: 0 }; return; }
    if (state.drawn) { const { corners } = state.drawn; state.drawn = null; if (corners.length > 2) select(pane, corners); toggleLasso(false); return; }
    if (event.type === "pointerup" && dragged <= 3) { hover(pane, ...where(event)); pin(pane, pane.hover); }
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => { if (pane.hover || !pane.tip.hidden) hover(pane); });
  canvas.addEventListener("dblclick", (event) => pane.magnify(2, ...where(event)));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    pane.magnify(2 ** clamp(-event.deltaY * (event.deltaMode ? 0.06 : 0.003), -1, 1), ...where(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    const keys = {
      "+": () => pane.magnify(1.5), "=": () => pane.magnify(1.5), "-": () => pane.magnify(1 / 1.5),
      "0": () => { pane.fit(); pane.moved(); },
      "s": () => select(pane, corners(pane)),
      "Enter": () => { const spot = pane.nearest(pane.width / 2, pane.height / 2, Math.max(pane.width, pane.height)); if (spot) pin(pane, spot); },
      "Escape": () => clear(),
    };
    const action = steps[event.key] ? () => pane.move(...steps[event.key]) : keys[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
}

const corners = (pane) => [[0, 0], [pane.width, 0], [pane.width, pane.height], [0, pane.height]].map(([x, y]) => pane.toSquare(x, y));

// ------------------------------------------------------------------------------------------- rows under a pointer

function hover(pane, x, y) {
  const inside = x !== undefined;
  pane.hover = inside ? pane.nearest(x, y) : null;
  const said = pane.hover ? sayRow(pane, pane.hover) : inside ? sayPixel(pane, x, y) : null;
  pane.tip.hidden = !said;
  if (said) {
    pane.tip.replaceChildren(...said);
    const box = pane.tip.getBoundingClientRect();
    pane.tip.style.left = clamp(x + 14, 0, Math.max(0, pane.width - box.width - 4)) + "px";
    pane.tip.style.top = clamp(y + 14 + box.height > pane.height ? y - box.height - 10 : y + 14, 0, pane.height) + "px";
  }
  pane.drawOver();
  link(pane, pane.hover || pane.pin);
}

// The same row on the other maps, and of a marked one its nearest rows.
async function link(pane, spot) {
  const told = ++state.told;
  for (const other of panes) {
    if (other === pane) continue;
    const rows = spot === pane.pin ? pane.lines : [];
    const [linked, ...lines] = await Promise.all([spot, ...rows].map((one) => one && sameRow(other.chart, one.points.rows[one.i])));
    if (told !== state.told) return;
    Object.assign(other, { linked, lines: linked ? lines.filter((one) => one) : [] });
    other.drawOver();
  }
}

const sameRow = async (chart, row) => { const place = await placeOfRow(chart, row); return place === NOWHERE ? null : chart.locate(place); };

const places = new Map();
async function placeOfRow(chart, row) {
  const file = Math.floor(row / chart.about.indexed), key = chart.about.folder + file;
  if (!places.has(key)) {
    if (places.size > 60) places.clear();
    places.set(key, loadBytes(`${chart.about.folder}/r/${Math.floor(file / 1000)}/${file}.js`).then((found) => new Uint32Array(found)));
  }
  return (await places.get(key))[row % chart.about.indexed];
}

function sayRow(pane, { points, i }) {
  const shown = pane.paint.column && pane.paint.column.name, all = values(pane.chart, points, i);
  const lines = [...all.filter(([name]) => name === shown), ...all.filter(([name]) => name !== shown)].slice(0, 8).map(([name, text]) => make("div", {}, name + ": " + text));
  return [make("b", {}, pane.chart.nameOf(points, i)), ...lines];
}

function values(chart, points, i) {
  const columns = chart.about.columns.map((column, c) => [column.name, chart.textOf(column, points.values[c](i))]);
  return points.ids ? [["row", points.rows[i].toLocaleString("en")], ...columns] : columns;
}

function sayPixel(pane, x, y) {
  const found = pane.mode === "tiles" ? pane.pixel(x, y) : null;
  if (!found) return null;
  const count = Math.round(2 ** ((found[0] - 1) / 8)), about = (count > 9 ? "about " : "") + count.toLocaleString("en");
  const { column, number } = pane.paint, lines = [make("b", {}, about + (count === 1 ? " row" : " rows"))];
  const [first, second] = column ? found.slice(1 + 2 * number, 3 + 2 * number) : [0, 0];
  if (first && column.kind === "class") {
    const name = first > CLASSES.length && column.classes.length > CLASSES.length ? "other" : column.classes[first - 1];
    lines.push(make("div", {}, `${column.name}: ${name}, ${Math.round(second / 2.55)} %`));
  } else if (first) {
    const text = (byte) => pane.chart.textOf(column, column.low + (byte - 1) / 254 * (column.high - column.low));
    lines.push(make("div", {}, `${column.name}: mean ${text(first)}, median ${text(second)}`));
  }
  return lines;
}

async function pin(pane, spot) {
  clear(false);
  pane.pin = spot;
  if (!spot) { tellRow(); return; }
  tellRow(pane, spot);
  pane.drawOver();
  const near = await pane.chart.neighbors(spot);
  if (pane.pin !== spot) return;
  pane.lines = near;
  tellRow(pane, spot, near);
  pane.drawOver();
  link(pane, spot);
}

function clear(selection = true) {
  for (const pane of panes) { Object.assign(pane, { pin: null, lines: [], linked: null }); pane.drawOver(); }
  if (selection && state.selection) { state.selection = null; tellSelection(); }
  if (selection) tellRow();
}

function tellRow(pane, spot, near) {
  if (!spot) { section.row.replaceChildren(); return; }
  const chart = pane.chart, { points, i } = spot;
  const list = make("dl", {}, ...values(chart, points, i).flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  const [x, y] = chart.toData(points.x[i], points.y[i]);
  chart.about.axes.forEach((name, axis) => list.append(make("dt", {}, name), make("dd", {}, shorter([x, y][axis]))));
  const rows = (near || []).map((one) => make("li", {}, make("button", { type: "button", onclick: () => goTo(pane, one) }, chart.nameOf(one.points, one.i))));
  const close = make("button", { type: "button", "aria-label": "Unmark this row", onclick: () => clear() }, "×");
  section.row.replaceChildren(make("h2", {}, make("span", { id: "pinned" }, chart.nameOf(points, i)), close), list,
    ...(rows.length ? [make("h2", {}, "Nearest rows in the data"), make("ul", {}, ...rows)] : []),
    ...(near && chart.about.near && !rows.length ? [make("p", {}, "Its nearest rows in the data are not known.")] : []));
}

async function goTo(pane, spot) {
  const scale = Math.max(pane.view.scale, Math.min(pane.width, pane.height) / spot.node.size / 3);
  pane.goTo(spot.points.x[spot.i], spot.points.y[spot.i], scale);
  await pin(pane, spot);
}

async function search(text) {
  section.found.replaceChildren();
  const pane = panes[0], place = text ? await pane.chart.find(text) : NOWHERE;
  if (place === NOWHERE) { if (text) section.found.append(make("p", { id: "nothing" }, `“${text}” is not a row of this map.`)); return; }
  await goTo(pane, await pane.chart.locate(place));
}

// -------------------------------------------------------------------------------------------------- selection

async function select(pane, area) {
  const chosen = { pane, area: new Area(area), count: 0, bars: pane.chart.layers.map((column) => new Array(column.bars).fill(0)), done: false };
  state.selection = chosen;
  pane.drawOver();
  tellSelection();
  const chart = pane.chart, columns = chart.layers.map((column) => [column, chart.about.columns.indexOf(column)]);
  await chart.within(chosen.area, (node) => {
    chosen.count += node.count;
    node.bars.forEach((bars, c) => bars.forEach((bar, b) => { chosen.bars[c][b] += bar; }));
    return true;
  }, (points, i) => {
    chosen.count++;
    columns.forEach(([column, c], number) => { const bar = barOf(column, points.values[c](i)); if (bar >= 0) chosen.bars[number][bar]++; });
  });
  chosen.done = true;
  if (state.selection === chosen) tellSelection();
}

function barOf(column, value) {
  if (column.kind === "class") return value === 65535 ? -1 : Math.min(value, column.bars - 1);
  if (!Number.isFinite(value)) return -1;
  return Math.floor(clamp((value - column.low) / (column.high - column.low || 1) * column.bars, 0, column.bars - 1));
}

function tellSelection() {
  const chosen = state.selection;
  if (!chosen) { section.selection.replaceChildren(); panes.forEach((pane) => pane.drawOver()); return; }
  const { chart } = chosen.pane, share = 100 * chosen.count / Math.max(chart.about.shown, 1);
  const text = chosen.done ? `${chosen.count.toLocaleString("en")} rows, ${shorter(share)} % of all` : "counting …";
  const close = make("button", { type: "button", "aria-label": "End the selection", onclick: () => clear() }, "×");
  const parts = [make("h2", {}, "Selection", close), make("p", { id: "selected" }, text)];
  if (chosen.done) {
    if (chosen.count) parts.push(make("button", { type: "button", onclick: () => saveRows(chosen) }, "Save its rows as CSV"));
    chart.layers.forEach((column, c) => parts.push(make("h2", {}, column.name), bars(column, chosen.bars[c], chart.root.bars[c])));
  }
  section.selection.replaceChildren(...parts);
}

// A histogram: of the selection in colour, of all rows behind it.
function bars(column, some, all) {
  const canvas = make("canvas", { className: "bars", width: 540, height: 84, role: "img", "aria-label": "Histogram of " + column.name });
  const context = canvas.getContext("2d"), look = theme();
  const shares = [all, some].map((counts) => { const sum = counts.reduce((a, b) => a + b, 0) || 1; return counts.map((one) => one / sum); });
  const top = Math.max(...shares.flat(), 1e-9), width = 540 / all.length;
  shares.forEach((each, which) => {
    context.fillStyle = which ? look.accent : look.soft;
    context.globalAlpha = which ? 0.9 : 0.4;
    each.forEach((share, i) => context.fillRect(i * width + (which ? width / 4 : 1), 84 * (1 - share / top), which ? width / 2 : width - 2, 84 * share / top));
  });
  const ends = column.kind === "class" ? [column.classes[0] || "", column.classes[all.length - 1] || ""]
    : [column.low, column.high].map((value) => charts[0][0].textOf(column, value));
  return make("div", {}, canvas, make("div", { className: "ends" }, ...ends.map((end) => make("span", {}, end))));
}

async function saveRows(chosen) {
  const { chart } = chosen.pane, lines = [chart.about.ids ? "id,row" : "row"];
  const cell = (text) => { const safe = /^'*[=+\-@\t\r]/.test(text) ? "'" + text : text; return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe; };
  await chart.within(chosen.area, null, (points, i) => lines.push((points.ids ? cell(points.ids(i)) + "," : "") + points.rows[i]));
  const url = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  make("a", { href: url, download: "selection.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
  chosen.saved = lines.length - 1;
}

// --------------------------------------------------------------------------------------------------- controls

function choice(label, options, value, onchoice) {
  const element = make("select", { "aria-label": label, title: label, onchange: () => onchoice(element.value) },
    ...options.map(([name, text]) => make("option", { value: name }, text)));
  element.value = value;
  return element;
}

function build() {
  const layers = charts[0][0].layers, shared = layers.filter((column) => charts.every(([chart]) => chart.layers.some((one) => one.name === column.name)));
  section.layer = choice("Colour", [["", "density"], ...shared.map((column) => [column.name, column.name])], look.layer, (name) => { look.layer = name; look.statistic = 0; restyle(); });
  section.layer.id = "layer";
  section.statistic = choice("Of a pixel", [], "0", (value) => { look.statistic = Number(value); restyle(); });
  section.scale = choice("Colour scale", [["viridis", "viridis"], ["magma", "magma"], ["viridis=", "viridis, equal shares"], ["magma=", "magma, equal shares"]], "viridis",
    (value) => { look.ramp = value.replace("=", ""); look.equal = value.endsWith("="); restyle(); });
  section.lasso = make("button", { id: "lasso", type: "button", ariaPressed: "false", title: "Draw around rows to select them", onclick: () => toggleLasso() }, "Select");
  const pairs = Math.min(...charts.map((each) => each.length)), controls = [section.layer, section.statistic, section.scale];
  if (pairs > 1) {
    const named = charts[0].slice(0, pairs).map((chart, number) => [String(number), chart.about.axes.join(" × ").replace(/^coordinate (\d+) × coordinate (\d+)$/, "coordinates $1 × $2")]);
    controls.push(section.pair = choice("Coordinates", named, "0", (value) => { state.chosen = true; choosePair(Number(value)); }));
  }
  $("controls").append(...controls, section.lasso,
    make("button", { type: "button", title: "Show all (0)", onclick: () => panes.forEach((pane) => { pane.fit(); pane.moved(); }) }, "All"));
  for (const name of ["found", "row", "legend", "selection", "notes"]) section[name] = $("side").appendChild(make("section", { id: "side-" + name }));
  $("search").addEventListener("submit", (event) => { event.preventDefault(); search($("find").value.trim()); });
  tellNotes();
}

function toggleLasso(on = !state.lasso) {
  state.lasso = on;
  section.lasso.ariaPressed = String(on);
  panes.forEach((pane) => pane.home.classList.toggle("lasso", on));
}

function choosePair(pair) {
  state.pair = pair;
  clear();
  panes.forEach((pane, number) => pane.show(charts[number][pair], look));
}

function restyle() {
  panes.forEach((pane) => pane.repaint(look));
  tellLegend();
  keepAddress();
}

function tellLegend() {
  const { paint, chart } = panes[0], column = paint.column;
  const names = !column ? [] : column.kind === "class" ? ["commonest", "its share"] : ["mean", "median"];
  section.statistic.replaceChildren(...names.map((name, i) => make("option", { value: String(i) }, name)));
  section.statistic.value = String(look.statistic);
  section.statistic.hidden = !column;
  section.scale.hidden = !column || (column.kind === "class" && !look.statistic);
  const parts = [make("h2", {}, column ? column.name : "density")];
  if (!column) parts.push(ramp(paint.density), ends("one row", "many rows in a pixel"));
  else if (column.kind === "class" && !look.statistic) parts.push(make("ul", { id: "classes" }, ...classLines(paint, column, chart)));
  else if (column.kind === "class") parts.push(ramp(paint.colors.slice(0, -1)), ends("0 %", "100 % of a pixel's rows"));
  else parts.push(ramp(Array.from({ length: STEPS }, (_, i) => paint.colors[paint.step(i / (STEPS - 1))])), ends(...[column.low, column.high].map((value) => chart.textOf(column, value))));
  if (column && column.missing) parts.push(make("p", {}, `${column.missing.toLocaleString("en")} rows without a value`));
  section.legend.replaceChildren(...parts);
}

function ramp(colors) {
  const canvas = make("canvas", { className: "ramp", width: colors.length, height: 1 }), context = canvas.getContext("2d");
  colors.forEach((color, i) => { context.fillStyle = css(color); context.fillRect(i, 0, 1, 1); });
  return canvas;
}

const ends = (...texts) => make("div", { className: "ends" }, ...texts.map((text) => make("span", {}, text)));

function classLines(paint, column, chart) {
  const counts = chart.root.bars[paint.number], shown = column.classes.slice(0, CLASSES.length);
  const lines = shown.map((name, i) => [name, paint.colors[i], counts[i]]);
  if (column.classes.length > shown.length) lines.push([`${column.classes.length - shown.length} others`, paint.pale, counts[shown.length]]);
  return lines.map(([name, color, count]) => {
    const swatch = make("span", { className: "swatch" });
    swatch.style.background = css(color);
    return make("li", {}, swatch, make("span", {}, `${name} (${count.toLocaleString("en")})`));
  });
}

// What is known of the maps: doubts first.
function tellNotes() {
  const parts = [];
  panes.forEach(({ said, number }) => {
    const { rows, shown, missing } = said.maps[0];
    if (panes.length > 1) parts.push(make("h2", {}, said.title));
    for (const { title, level, messages } of said.warnings) {
      parts.push(make("div", { className: level }, make("b", {}, title), ...messages.map((message) => make("p", {}, message))));
    }
    const hidden = missing ? `; ${missing.toLocaleString("en")} have no finite coordinates and are not on it` : "";
    parts.push(make("p", {}, `${rows.toLocaleString("en")} rows${shown < rows ? `, ${shown.toLocaleString("en")} on the map` : ""}${hidden}.`));
    const listed = said.maps[0].near ? shown - said.maps[0].columns.at(-1).missing : shown;
    if (listed < shown) parts.push(make("p", {}, `Nearest rows are known of ${listed.toLocaleString("en")}; the others are grey in “neighbors kept”, and have no lines.`));
    if (said.facts.length) parts.push(make("dl", {}, ...said.facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)])));
  });
  if (ABOUT.panes.some((said) => said.maps[0].near)) {
    parts.push(make("p", {}, "“neighbors kept” is the share of a row's nearest rows in the data that are also near it on the map: where it is low, do not trust what lies side by side."));
  }
  if (ABOUT.moved) {
    const list = ABOUT.moved.rows.map((row) => make("li", {}, make("button", { type: "button", onclick: () => search("#" + row.row) }, `${row.name}: ${shorter(row.moved)}`)));
    parts.push(make("h2", {}, "Rows that moved most"), make("p", {}, ABOUT.moved.text), make("ul", {}, ...list));
  }
  parts.push(make("p", {}, "Arrows, +, − and 0 move the map, Enter marks the row at the centre, s selects what is in view, Esc ends both."));
  section.notes.replaceChildren(...parts);
}

// ---------------------------------------------------------------------------------------------------- address

// #x,y,z,layer: the centre in coordinates, the zoom, the layer; where there are several pairs also which.
function keepAddress() {
  const pane = panes[0];
  if (!pane.view) return;
  const round = (value, axis) => Number(value.toPrecision(clamp(Math.ceil(pane.zoom / 3.3) + 4 + axis, 4, 15)));
  const [x, y] = pane.chart.toData(pane.view.x, pane.view.y);
  const parts = [round(x, 0), round(y, 0), Number(pane.zoom.toFixed(3)), encodeURIComponent(look.layer), ...(state.pair ? [state.pair] : [])];
  state.address = "#" + parts.join(",");
  clearTimeout(state.timer);
  state.timer = setTimeout(() => history.replaceState(null, "", state.address), 120);
}

function readAddress(pane) {
  const [x, y, z, layer, pair] = location.hash.slice(1).split(",");
  if (layer === undefined || ![x, y, z].every((text) => text && Number.isFinite(Number(text)))) return;
  const known = [...section.layer.options].map((option) => option.value);
  let name = "";
  try { name = decodeURIComponent(layer); } catch { /* not one of ours */ }
  if (known.includes(name) && name !== look.layer) { look.layer = section.layer.value = name; look.statistic = 0; restyle(); }
  if (pane.number === 0 && pair && Number(pair) !== state.pair && charts.every((each) => each[Number(pair)])) { section.pair.value = pair; choosePair(Number(pair)); panes.forEach((one) => { one.placed = false; }); return; }
  if (pane.number && pane.chart.about.folder !== panes[0].chart.about.folder && ABOUT.panes.length > 1) return;
  const [u, v] = pane.chart.toSquare(Number(x), Number(y));
  pane.view = { x: clamp(u, 0, 1), y: clamp(v, 0, 1), scale: 1 };
  pane.zoom = Number(z);
}

window.addEventListener("hashchange", () => { if (location.hash !== state.address) { readAddress(panes[0]); panes[0].draw(); } });
dark.addEventListener("change", () => { restyle(); tellSelection(); });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/INPUT|SELECT/.test(document.activeElement.tagName)) { event.preventDefault(); $("find").focus(); }
});

build();
choosePair(0);
tellLegend();
