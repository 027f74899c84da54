"use strict";
// A map on a canvas: tiles where a view holds many rows, the points themselves where it holds few.

const VIRIDIS = ["#440154", "#482576", "#404688", "#33638d", "#287d8e", "#1f968b", "#29af7f", "#56c667", "#95d840", "#dde318", "#fde725"];
const MAGMA = ["#000004", "#180f3e", "#451077", "#721f81", "#9f2f7f", "#cd4071", "#f1605d", "#fd9567", "#feca8d", "#fcfdbf"];
const CLASSES = ["#4269d0", "#efb118", "#ff725c", "#3ca951", "#97bbf5", "#a463f2", "#9c6b4e", "#ff8ab7", "#6cc5b0", "#5f6770",
  "#1b4f9c", "#a87900", "#c23b22", "#1f7a34", "#5b8fd6", "#6a2bb8", "#5e3f2c", "#c74f80", "#2f8a76"];
const PALE = "#8a919c", MOST_POINTS = 100000, PHASES = 4, STEPS = 64, FAINT = 0.5, UNKNOWN = 0.3;
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => dark.matches
  ? { density: ["#1d3f63", "#2f6da8", "#58a4e0", "#a9d6fb", "#f4fbff"], ramp: [0.16, 1], lift: 0.25, ink: "#e9edf2", soft: "#a3acb8", plate: "#12161c", accent: "#ffb35c" }
  : { density: ["#b9d3ea", "#5d9bd0", "#2166ac", "#0d3b73", "#071d3d"], ramp: [0, 0.93], lift: 0, ink: "#1d2127", soft: "#5a616b", plate: "#f7f8fa", accent: "#d1440c" };

const rgb = (text) => [1, 3, 5].map((place) => parseInt(text.slice(place, place + 2), 16));
const css = (color) => `rgb(${color.map(Math.round).join(" ")})`;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function along(stops, share) {
  const place = clamp(share, 0, 1) * (stops.length - 1), first = Math.min(Math.floor(place), stops.length - 2);
  const [a, b] = [rgb(stops[first]), rgb(stops[first + 1])];
  return a.map((channel, i) => channel + (b[i] - channel) * (place - first));
}

// What a map is coloured by, in the colours of the page: of a point, and of a pixel of a tile.
class Paint {
  constructor(chart, { layer, statistic, ramp, equal }) {
    const look = theme();
    this.key = [layer, statistic, ramp, equal, dark.matches].join("|");
    this.chart = chart;
    this.number = chart.layers.findIndex((column) => column.name === layer);
    this.column = chart.layers[this.number];
    this.place = chart.about.columns.indexOf(this.column);
    this.share = statistic === 1 && this.column && this.column.kind === "class";
    const stops = ramp === "magma" ? MAGMA : VIRIDIS, [low, high] = look.ramp;
    const lifted = (color) => rgb(color).map((channel) => channel * (1 - look.lift) + 255 * look.lift);
    this.pale = lifted(PALE);
    this.density = Array.from({ length: 256 }, (_, i) => along(look.density, i / 255));
    this.rank = this.column && this.column.kind !== "class" && equal ? this.ranks(chart) : (share) => share;
    if (!this.column) this.colors = [along(look.density, 0.55)];
    else if (this.column.kind === "class" && !this.share) {
      this.colors = this.column.classes.slice(0, CLASSES.length).map((_, i) => lifted(CLASSES[i]));
    } else this.colors = Array.from({ length: STEPS }, (_, i) => along(stops, low + (high - low) * i / (STEPS - 1)));
    const others = this.column && this.column.kind === "class" && this.column.classes.length > CLASSES.length;
    this.unknown = this.column && !others ? this.colors.length : -1;  // the colour of rows without a value
    this.colors.push(this.pale);
    this.palette = [...this.density, ...this.colors];  // of points
    this.byte = Array.from({ length: 256 }, (_, value) => this.colors[this.ofByte(value)]);
  }

  // Equal colours for equally many rows: by the histogram of all.
  ranks(chart) {
    const bars = chart.root.bars[this.number], total = bars.reduce((sum, bar) => sum + bar, 0) || 1;
    const below = bars.reduce((sums, bar) => [...sums, sums[sums.length - 1] + bar / total], [0]);
    return (share) => {
      const place = clamp(share, 0, 1) * bars.length, bar = Math.min(Math.floor(place), bars.length - 1);
      return below[bar] + (below[bar + 1] - below[bar]) * (place - bar);
    };
  }

  step(share) { return Math.round(clamp(this.rank(share), 0, 1) * (STEPS - 1)); }

  ofByte(value) {
    if (!this.column || !value) return this.colors.length - 1;
    if (this.share) return this.step(value / 255);
    return this.column.kind === "class" ? Math.min(value - 1, this.colors.length - 1) : this.step((value - 1) / 254);
  }

  // The number of the colour of each point.
  ofPoints(points) {
    if (!this.column) return () => 0;
    const value = points.values[this.place], { kind, low, high } = this.column, last = this.colors.length - 1;
    if (kind === "class") return this.share ? (i) => (value(i) === 65535 ? last : STEPS - 1) : (i) => Math.min(value(i), last);
    return (i) => { const one = value(i); return Number.isFinite(one) ? this.step((one - low) / (high - low || 1)) : last; };
  }

  // A tile as a picture, made once.
  image(node, statistic) {
    const { at, planes, images } = node.tile;
    if (images.has(this.key)) return images.get(this.key);
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = SIDE;
    const context = canvas.getContext("2d"), data = context.createImageData(SIDE, SIDE), out = data.data;
    const strong = this.chart.about.strong[node.level] || 255, known = this.column;
    const plane = known ? planes[1 + 2 * this.number + (statistic ? 1 : 0)] : null;
    const certain = known && known.kind === "class" && !this.share ? planes[2 + 2 * this.number] : null;
    for (let i = 0; i < at.length; i++) {
      const strength = Math.min(planes[0][i] / strong, 1), share = certain ? certain[i] / 255 : 1, place = 4 * at[i];
      const color = known ? this.byte[plane[i]] : this.density[Math.round(255 * strength)];
      for (let c = 0; c < 3; c++) out[place + c] = color[c] * share + this.pale[c] * (1 - share);
      out[place + 3] = !known ? 255 : plane[i] ? 255 * (FAINT + (1 - FAINT) * strength) : 255 * UNKNOWN;
    }
    context.putImageData(data, 0, 0);
    if (images.size > 2) images.clear();
    images.set(this.key, canvas);
    return canvas;
  }
}

// Points, written into pixels one by one: many times as quick as a call of the canvas for each.
class Spray {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.context = this.canvas.getContext("2d");
  }

  begin(width, height) {
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    return this.context.createImageData(width, height);
  }

  // Discs; four numbers each: x, y, place in the palette, alpha.
  discs(context, { base, ratio, radius, paint: { palette } }, found) {
    const image = this.begin(base.width, base.height), reach = Math.ceil(radius * ratio + 1);
    const discs = Array.from({ length: PHASES ** 2 }, (_, i) => disc(radius * ratio, reach, (i % PHASES) / PHASES, Math.floor(i / PHASES) / PHASES));
    for (let i = 0; i < found.length; i += 4) {
      const x = found[i] * ratio, y = found[i + 1] * ratio, color = palette[found[i + 2]], left = Math.floor(x), top = Math.floor(y);
      const mask = discs[Math.floor((y - top) * PHASES) * PHASES + Math.floor((x - left) * PHASES)], across = 2 * reach + 1;
      for (let m = 0; m < mask.length; m++) if (mask[m]) blend(image, left - reach + m % across, top - reach + Math.floor(m / across), color, mask[m] * found[i + 3]);
    }
    this.context.putImageData(image, 0, 0);
    context.drawImage(this.canvas, 0, 0, base.width / ratio, base.height / ratio);
  }

  // Pixels of a level of tiles, as a picture that is scaled as those are.
  cells(context, pane, found) {
    const side = SIDE * 2 ** pane.level, [left, top, right, low] = pane.box.map((one) => Math.floor(one * side)), scale = pane.view.scale / side;
    const image = this.begin(right - left + 1, low - top + 1);
    for (let i = 0; i < found.length; i += 4) blend(image, found[i] - left, found[i + 1] - top, pane.paint.palette[found[i + 2]], found[i + 3]);
    this.context.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = scale * pane.ratio < 2;
    context.drawImage(this.canvas, ...pane.toScreen(left / side, top / side), image.width * scale, image.height * scale);
  }
}

// How much of each pixel around a point a disc covers, about.
function disc(radius, reach, right, down) {
  const across = 2 * reach + 1, out = new Float32Array(across ** 2);
  for (let i = 0; i < out.length; i++) {
    out[i] = clamp(radius + 0.5 - Math.hypot(i % across - reach + 0.5 - right, Math.floor(i / across) - reach + 0.5 - down), 0, 1);
  }
  return out;
}

function blend({ data, width, height }, x, y, color, alpha) {
  if (x < 0 || y < 0 || x >= width || y >= height) return;
  const at = 4 * (y * width + x), under = data[at + 3] / 255 * (1 - alpha), all = alpha + under;
  for (let c = 0; c < 3; c++) data[at + c] = (color[c] * alpha + data[at + c] * under) / all;
  data[at + 3] = 255 * all;
}

class Pane {
  constructor(home, title) {
    this.home = home;
    this.base = home.appendChild(document.createElement("canvas"));
    this.over = home.appendChild(document.createElement("canvas"));
    this.over.tabIndex = 0;
    this.over.setAttribute("role", "application");
    this.over.setAttribute("aria-label", title + ": a map. Arrows move it, + and − zoom, Enter marks the nearest row.");
    this.view = null;  // the centre, in the square, and pixels of its side
    this.chart = null;
    this.paint = null;
    this.look = {};
    this.shown = [];  // leaves whose points are drawn
    this.mode = "tiles";
    this.spray = new Spray();
    this.over2d = this.over.getContext("2d");
    this.base2d = this.base.getContext("2d");
    new ResizeObserver(() => this.resize()).observe(home);
  }

  show(chart, look) {
    if (chart !== this.chart) { this.chart = chart; this.view = null; chart.onload = () => this.draw(); }
    this.look = look;
    this.paint = new Paint(chart, look);
    this.draw();
  }

  repaint(look = this.look) { if (this.chart) this.show(this.chart, look); }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.home, ratio = Math.min(devicePixelRatio || 1, 2);
    for (const canvas of [this.base, this.over]) { canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio); }
    Object.assign(this, { width, height, ratio });
    this.draw();
  }

  fit() {
    const [left, right, low, high] = this.chart.about.first;
    const [a, b] = [this.chart.toSquare(left, high), this.chart.toSquare(right, low)];
    const scale = 0.94 * Math.min(this.width / (b[0] - a[0]), this.height / (b[1] - a[1]));
    this.view = { x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2, scale };
  }

  get zoom() { return Math.log2(this.view.scale / Math.min(this.width, this.height)); }
  set zoom(value) { this.view.scale = clamp(2 ** value, 0.3, 2 ** 34) * Math.min(this.width, this.height); }

  toScreen(x, y) { return [(x - this.view.x) * this.view.scale + this.width / 2, (y - this.view.y) * this.view.scale + this.height / 2]; }
  toSquare(x, y) { return [(x - this.width / 2) / this.view.scale + this.view.x, (y - this.height / 2) / this.view.scale + this.view.y]; }

  move(dx, dy) {
    this.view.x = clamp(this.view.x - dx / this.view.scale, 0, 1);
    this.view.y = clamp(this.view.y - dy / this.view.scale, 0, 1);
    this.moved();
  }

  // Bigger by a factor; what is at a point of the screen stays there.
  magnify(factor, x = this.width / 2, y = this.height / 2) {
    const before = this.toSquare(x, y);
    this.zoom += Math.log2(factor);
    const after = this.toSquare(x, y);
    this.view.x = clamp(this.view.x + before[0] - after[0], 0, 1);
    this.view.y = clamp(this.view.y + before[1] - after[1], 0, 1);
    this.moved();
  }

  goTo(x, y, scale = this.view.scale) {
    this.view = { x, y, scale };
    this.moved();
  }

  moved() { this.draw(); if (this.onmove) this.onmove(); }

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.drawNow(); });
  }

  drawNow() {
    if (!this.chart || !this.width || !this.height) return;
    if (!this.view) {
      this.fit();
      if (this.onfit) this.onfit();
      if (!this.view) return;  // (other coordinates were chosen, and are drawn next)
    }
    const context = this.base2d, root = this.chart.root;
    this.chart.frame++;
    this.box = [...this.toSquare(0, 0), ...this.toSquare(this.width, this.height)];
    this.rows = this.estimate(root);
    this.mode = this.rows <= MOST_POINTS ? "points" : "tiles";
    this.level = Math.max(0, Math.round(Math.log2(this.view.scale * Math.sqrt(this.ratio) / SIDE) - 0.35));
    this.shown = [];
    this.complete = true;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = theme().plate;
    context.fillRect(0, 0, this.width, this.height);
    this.visit(root, null);
    this.drawPoints(context);
    this.drawOver();
  }

  overlap({ left, top, size }) {
    const [a, b, c, d] = this.box;
    return Math.max(0, Math.min(c, left + size) - Math.max(a, left)) * Math.max(0, Math.min(d, top + size) - Math.max(b, top)) / size ** 2;
  }

  // About how many rows are in view, by the nodes that are known.
  estimate(node) {
    const share = node.count ? this.overlap(node) : 0;
    if (!share || share > 0.999 || !node.quarters) return share * node.count;
    return node.quarters.reduce((sum, quarter) => sum + this.estimate(quarter), 0);
  }

  visit(node, above) {
    if (!node.count || !this.overlap(node)) return;
    node.used = this.chart.frame;
    if (!node.there) {
      this.complete = false;
      this.chart.load(node).catch(() => {});
      if (above) this.drawTile(above, node);
      return;
    }
    if (node.kind === POINTS) { this.shown.push(node); return; }
    if (this.mode === "tiles" && node.level >= this.level) { this.drawTile(node, node); return; }
    for (const quarter of node.quarters) this.visit(quarter, node);
  }

  // The part of a tile that shows a node, itself or one below.
  drawTile(node, part) {
    const [x, y] = this.toScreen(part.left, part.top), side = part.size * this.view.scale;
    const share = SIDE * part.size / node.size;
    const from = [(part.left - node.left) / node.size * SIDE, (part.top - node.top) / node.size * SIDE];
    this.base2d.imageSmoothingQuality = "high";
    this.base2d.imageSmoothingEnabled = side * this.ratio < 2 * share;
    this.base2d.drawImage(this.paint.image(node, this.look.statistic), ...from, share, share, x, y, side, side);
  }

  // Points one by one or, among tiles, as pixels like theirs, so that no seam shows where leaves begin.
  drawPoints(context) {
    const dots = this.mode === "points", found = [], unknown = [];
    for (const { parts: [points] } of this.shown) {
      const list = dots ? this.spotsOf(points) : this.cellsOf(points);
      for (let i = 0; i < list.length; i += 4) {
        const [x, y] = dots ? this.toScreen(list[i], list[i + 1]) : [list[i], list[i + 1]];
        if (!dots || (x > -9 && y > -9 && x < this.width + 9 && y < this.height + 9)) (list[i + 3] === UNKNOWN ? unknown : found).push(x, y, list[i + 2], list[i + 3]);
      }
    }
    const all = unknown.concat(found), area = this.width * this.height * 0.05 / (Math.PI * Math.max(all.length / 4, 1));
    this.radius = dots ? clamp(Math.sqrt(area), 1.3, 5) : 0.6;
    if (all.length) this.spray[dots ? "discs" : "cells"](context, this, all);
  }

  // x, y, colour and alpha of each point.
  spotsOf(points) {
    const color = this.paint.ofPoints(points), list = new Float64Array(4 * points.n);
    for (let i = 0; i < points.n; i++) {
      const shade = color(i);
      list.set([points.x[i], points.y[i], 256 + shade, shade === this.paint.unknown ? UNKNOWN : 0.85], 4 * i);
    }
    return list;
  }

  // The same of the pixels that points fall on, at the level of the tiles in view.
  cellsOf(points) {
    const key = this.level + this.paint.key;
    if (points.cells && points.cells.key === key) return points.cells.list;
    const side = SIDE * 2 ** this.level, counts = new Map(), color = this.paint.ofPoints(points), list = [];
    for (let i = 0; i < points.n; i++) {
      const cell = Math.floor(points.y[i] * side) * side + Math.floor(points.x[i] * side), there = counts.get(cell);
      if (there) there[0]++; else counts.set(cell, [1, color(i)]);
    }
    const strong = this.chart.about.strong[this.level] || 255;
    for (const [cell, [count, shade]] of counts) {
      const strength = Math.min((1 + Math.round(8 * Math.log2(count))) / strong, 1), known = this.paint.column;
      list.push(cell % side, Math.floor(cell / side), known ? 256 + shade : Math.round(255 * strength), !known ? 1 : shade === this.paint.unknown ? UNKNOWN : FAINT + (1 - FAINT) * strength);
    }
    points.cells = { key, list };
    return list;
  }

  // The row that is nearest to a point of the screen, among those drawn.
  nearest(x, y, reach = 14) {
    const [u, v] = this.toSquare(x, y);
    let best = (reach / this.view.scale) ** 2, found = null;
    for (const node of this.shown) {
      const far = reach / this.view.scale;
      if (u < node.left - far || v < node.top - far || u > node.left + node.size + far || v > node.top + node.size + far) continue;
      const points = node.parts[0];
      for (let i = 0; i < points.n; i++) {
        const apart = (points.x[i] - u) ** 2 + (points.y[i] - v) ** 2;
        if (apart < best) { best = apart; found = { node, part: 0, points, i, place: points.first + i }; }
      }
    }
    return found;
  }

  // What the tile says of the pixel under a point of the screen.
  pixel(x, y) {
    const [u, v] = this.toSquare(x, y);
    let node = this.chart.root;
    const under = (one) => u >= one.left && u < one.left + one.size && v >= one.top && v < one.top + one.size;
    while (node && node.level < this.level && node.quarters) node = node.quarters.find(under);
    if (!node || !node.tile || !under(node)) return null;
    const place = Math.floor((v - node.top) / node.size * SIDE) * SIDE + Math.floor((u - node.left) / node.size * SIDE);
    const i = node.tile.at.indexOf(place);
    return i < 0 ? null : node.tile.planes.map((plane) => plane[i]);
  }

  drawOver() {
    if (!this.box) return;
    const context = this.over2d, look = theme();
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.drawAxes(context, look);
    if (this.onover) this.onover(context, look);
  }

  mark(context, x, y, color, radius = this.radius + 4, width = 2) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    context.arc(...this.toScreen(x, y), radius, 0, 7);
    context.stroke();
  }

  drawAxes(context, look) {
    const [left, top] = this.chart.toData(this.box[0], this.box[1]), [right, low] = this.chart.toData(this.box[2], this.box[3]);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = context.strokeStyle = look.soft;
    context.lineWidth = 1;
    for (const value of ticks(left, right, this.width / 110)) {
      const x = (value - left) / (right - left) * this.width;
      if (x < 40 || x > this.width - 30) continue;
      context.fillRect(x, this.height - 5, 1, 5);
      context.textAlign = "center";
      context.fillText(tickText(value, right - left), x, this.height - 8);
    }
    context.textAlign = "left";
    for (const value of ticks(low, top, this.height / 80)) {
      const y = this.height - (value - low) / (top - low) * this.height;
      if (y < 30 || y > this.height - 24) continue;
      context.fillRect(0, y, 5, 1);
      context.fillText(tickText(value, top - low), 8, y + 4);
    }
  }
}

function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1), unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((one) => one >= rough), out = [];
  for (let value = Math.ceil(low / step) * step; value <= high && out.length < 40; value += step) out.push(value);
  return out;
}

const tickText = (value, range) => String(Number((Math.abs(value) < range * 1e-6 ? 0 : value).toPrecision(
  clamp(Math.ceil(Math.log10(Math.max(Math.abs(value) / range, 1))) + 3, 3, 12))));
