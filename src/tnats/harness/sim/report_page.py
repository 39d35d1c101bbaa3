"""The style and the script of a report page."""

STYLE = """
:root { color-scheme: light dark; --back: #fbfaf7; --ink: #24211c; --dim: #6b6455; --line: #e4dfd3; --card: #fff;
  --good: #2c7a4b; --bad: #b3261e; --net: #d98a00; --proc: #7b4fc4; --disk: #c2352b; --clock: #0f8f87; --admin: #77716a;
  --publish: #2f6fd0; --receive: #2c7a4b; --flush: #a9a294; --answer: #0f8f87; --link: #7b4fc4 }
@media (prefers-color-scheme: dark) { :root { --back: #17181b; --ink: #e6e3dc; --dim: #a09b90; --line: #303237;
  --card: #1f2125; --good: #62c48a; --bad: #ff7a70; --net: #f0b040; --proc: #b393f0; --disk: #ff8a7e; --clock: #4ccdc3;
  --admin: #a8a39b; --publish: #79aefb; --receive: #62c48a; --flush: #65625c; --answer: #4ccdc3; --link: #b393f0 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
main { max-width: 1240px; margin: 0 auto; padding: 28px 24px 60px }
header { border-left: 6px solid var(--good); padding: 2px 0 2px 20px; margin-bottom: 30px }
header.bad { border-color: var(--bad) }
.verdict { margin: 0; font-weight: 650; letter-spacing: .04em; text-transform: uppercase; font-size: 13px;
  color: var(--good) }
.bad .verdict { color: var(--bad) }
h1 { margin: 2px 0 6px; font-size: 25px; font-weight: 650 }
h2 { font-size: 16px; margin: 30px 0 10px; font-weight: 650 }
.what { font-size: 17px; margin: 0 0 10px; max-width: 72ch }
code, pre, time { font: 12.5px/1.55 ui-monospace, monospace }
.replay code { background: var(--card); border: 1px solid var(--line); padding: 5px 10px; border-radius: 6px;
  user-select: all; overflow-wrap: anywhere }
.hint, .tools { color: var(--dim); font-size: 13px }
.tools { display: flex; gap: 16px; align-items: center; flex-wrap: wrap; margin: 0 0 8px }
button { font: inherit; color: var(--ink); background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 2px 10px; cursor: pointer }
#chart { background: var(--card); border: 1px solid var(--line); border-radius: 10px; overflow: hidden;
  touch-action: none }
#detail { min-height: 1.6em; margin: 8px 2px }
circle { cursor: pointer }
svg { display: block; width: 100%; font: 12px system-ui, sans-serif; user-select: none }
svg text { fill: var(--ink) } svg text.dim { fill: var(--dim) }
.legend { display: flex; gap: 4px 16px; flex-wrap: wrap; font-size: 12.5px; color: var(--dim); margin: 8px 2px 0 }
.legend i { display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 6px }
.legend i.band { border-radius: 2px; width: 14px; opacity: .6 }
.legend i.strip { border-radius: 0; width: 14px; height: 3px; background: var(--bad); vertical-align: middle }
.chain { list-style: none; margin: 0; padding: 0; border-left: 2px solid var(--line) }
.chain li { padding: 2px 0 2px 16px; position: relative; color: var(--dim); cursor: pointer }
.chain li::before { content: ""; position: absolute; left: -5px; top: 11px; width: 8px; height: 8px; border-radius: 50%;
  background: var(--line) }
.chain .cause, .chain .culprit { color: var(--ink) } .chain .cause::before { background: var(--publish) }
.chain .culprit { font-weight: 600 } .chain .culprit::before { background: var(--bad) }
.chain .log span { font: 12.5px/1.55 ui-monospace, monospace; overflow-wrap: anywhere } .chain .log { cursor: default }
.chain time { display: inline-block; width: 12ch; margin-right: 12px; color: var(--dim); font-weight: 400 }
.chain b { display: inline-block; min-width: 76px }
table { border-collapse: collapse } td, th { padding: 3px 18px 3px 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line) }
td code { overflow-wrap: anywhere }
details { margin-top: 14px } summary { cursor: pointer; font-weight: 600 }
pre { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px;
  max-height: 420px }
"""

SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const chart = document.getElementById("chart"), detail = document.getElementById("detail");
const order = document.getElementById("order"), arrows = document.getElementById("arrows");
const NS = "http://www.w3.org/2000/svg", LANE = 34, TOP = 30, LEFT = 92, RIGHT = 18;
const notes = data.notes, byIndex = new Map(notes.map(note => [note.index, note]));
const effects = new Map();
for (const note of notes)
  if (note.cause != null) effects.set(note.cause, (effects.get(note.cause) || []).concat(note));
const laneOf = new Map(data.lanes.map((name, place) => [name, place]));
const colour = {publish: "--publish", receive: "--receive", flush: "--flush", flushed: "--flush", answer: "--answer",
  connect: "--link", disconnect: "--bad", start: "--link", damage: "--disk", power: "--disk", failure: "--bad",
  refused: "--bad", unknown: "--net",
  subscribe: "--admin", unsubscribe: "--admin", append: "--publish", ack: "--receive", fault: "--net"};
const area = {N: "--net", P: "--proc", D: "--disk", T: "--clock", O: "--admin"};
let view, picked = data.culprit == null ? new Set() : new Set(data.chain), width = 1000;

const css = name => `var(${name})`;
const colourOf = note => note.index === data.culprit ? css("--bad") : css(colour[note.kind] || "--admin");
function placeOf(time) {            // the first event at or after a time
  let low = 0, high = notes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (notes[middle].time_ns < time) low = middle + 1; else high = middle;
  }
  return low;
}
const placed = new Map(notes.map((note, place) => [note.index, place]));
const value = note => order.checked ? placed.get(note.index) : note.time_ns;
const valueOfTime = time => order.checked ? placeOf(time) : time;
const whole = () => order.checked ? [0, Math.max(1, notes.length)] : [0, Math.max(1, data.end)];
const x = v => LEFT + (v - view[0]) / (view[1] - view[0]) * (width - LEFT - RIGHT);
const y = lane => TOP + (laneOf.get(lane) ?? 0) * LANE + LANE / 2;
function focusRange() {
  const values = data.chain.map(index => byIndex.get(index)).filter(Boolean).map(value);
  if (!values.length) return whole();
  const low = Math.min(...values), high = Math.max(...values);
  const pad = Math.max((high - low) * 0.6, order.checked ? 14 : 2e5);
  return [low - pad, high + pad];
}
function element(parent, name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text != null) made.textContent = text;
  parent.appendChild(made);
  return made;
}
function seconds(ns) { return (ns / 1e9).toFixed(6) + " s"; }
function ticks(svg, height) {
  const span = view[1] - view[0], rough = span / 8, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough);
  for (let v = Math.ceil(view[0] / step) * step; v <= view[1]; v += step) {
    if (v < 0) continue;
    element(svg, "line", {x1: x(v), x2: x(v), y1: TOP - 6, y2: height - 20, stroke: css("--line")});
    const digits = Math.max(0, Math.min(6, 9 - Math.floor(Math.log10(step))));
    element(svg, "text", {x: x(v), y: 16, "text-anchor": "middle", class: "dim"},
      order.checked ? v : (v / 1e9).toFixed(digits) + " s");
  }
}
const named = new Map();  // lane: where the last name of a fault ends
function band(svg, note, lane) {
  const until = note.until_ns ?? note.time_ns;
  const from = Math.max(LEFT, x(value(note))), to = Math.min(width - RIGHT, x(valueOfTime(until)));
  if (to < LEFT || from > width - RIGHT) return;
  const kind = note.text.split(" ").find(word => /^[NPDTO]_/.test(word)) || "N_", number = note.text.split(" ")[0];
  const shape = element(svg, "rect", {x: from, y: y(lane) - LANE / 2 + 3, width: Math.max(3, to - from),
    height: LANE - 6, rx: 3, fill: css(area[kind[0]]), "fill-opacity": 0.2, stroke: css(area[kind[0]]),
    "stroke-opacity": 0.55});
  element(shape, "title", {}, note.text + "\\n" + seconds(note.time_ns) + " to " + seconds(until));
  // The whole name where it fits, its number where that fits, else what another one covers is in the tip alone.
  const name = [`${number} ${kind}`, number].find(text => from + 4 + text.length * 6.5 <= to);
  if (name == null || from < (named.get(lane) ?? 0)) return;
  named.set(lane, from + 4 + name.length * 6.5);
  element(svg, "text", {x: from + 4, y: y(lane) - LANE / 2 + 13,
    style: "font-size:10.5px;pointer-events:none"}, name);
}
function strip(svg, note) {   // how long what was acknowledged could still be lost
  const from = Math.max(LEFT, x(value(note))), to = Math.min(width - RIGHT, x(valueOfTime(note.until_ns)));
  if (to < LEFT || from > width - RIGHT) return;
  const shape = element(svg, "rect", {x: from, y: y(note.lane) + LANE / 2 - 6, width: Math.max(1, to - from), height: 3,
    fill: css("--bad")});
  element(shape, "title", {}, `${note.text}\\n${seconds(note.time_ns)} to ${seconds(note.until_ns)}`);
}
function arrow(svg, from, to, strong) {
  if (from == null || to == null || from.lane === to.lane && from.kind === "flush") return;
  const [ax, ay, bx, by] = [x(value(from)), y(from.lane), x(value(to)), y(to.lane)];
  if (Math.max(ax, bx) < LEFT || Math.min(ax, bx) > width) return;
  const bend = ay === by ? -22 : 0;
  element(svg, "path", {d: `M${ax} ${ay} Q${(ax + bx) / 2} ${(ay + by) / 2 + bend} ${bx} ${by}`, fill: "none",
    stroke: colourOf(to), "stroke-width": strong ? 1.8 : 0.8, "stroke-opacity": strong ? 0.95 : 0.35,
    "marker-end": strong ? "url(#head)" : ""});
}
function draw() {
  width = chart.clientWidth || 1000;
  const height = TOP + data.lanes.length * LANE + 24;
  chart.textContent = "";
  const svg = element(chart, "svg", {viewBox: `0 0 ${width} ${height}`, height});
  const head = element(element(svg, "defs", {}), "marker", {id: "head", viewBox: "0 0 8 8", refX: 8, refY: 4,
    markerWidth: 6, markerHeight: 6, orient: "auto-start-reverse"});
  element(head, "path", {d: "M0 0 L8 4 L0 8 z", fill: css("--dim")});
  ticks(svg, height);
  for (const lane of data.lanes) {
    element(svg, "line", {x1: LEFT, x2: width - RIGHT, y1: y(lane), y2: y(lane), stroke: css("--line")});
  }
  named.clear();
  for (const note of notes) if (note.kind === "fault") for (const lane of note.targets || []) band(svg, note, lane);
  for (const note of notes) if (note.kind === "volatile" && note.until_ns != null) strip(svg, note);
  const captionEnds = [0, 0];  // captions of phases that would cover each other stand in two rows
  for (const note of notes) {
    const at = x(value(note));
    if (note.kind !== "phase" || at < LEFT || at > width) continue;
    element(svg, "line", {x1: at, x2: at, y1: TOP - 6, y2: height - 20, stroke: css("--dim"),
      "stroke-dasharray": "3 3"});
    const late = at > width - 140, size = note.text.length * 5.5;
    const start = late ? at - 4 - size : at + 4, row = captionEnds.findIndex(end => end <= start);
    if (row < 0) continue;
    captionEnds[row] = start + size + 8;
    element(svg, "text", {x: late ? at - 4 : at + 4, y: height - (row ? 2 : 12), class: "dim",
      style: "font-size:10px", "text-anchor": late ? "end" : "start"}, note.text);
  }
  const drawn = new Set();
  if (arrows.checked)
    for (const note of notes) if (note.cause != null) arrow(svg, byIndex.get(note.cause), note, false);
  for (const index of picked) {
    const note = byIndex.get(index);
    if (note) arrow(svg, byIndex.get(note.cause), note, true);
  }
  const isSpecial = note => picked.has(note.index) || note.index === data.culprit;
  for (const note of [...notes, ...notes.filter(isSpecial)]) {    // what is special once more, on top of the others
    if (!laneOf.has(note.lane) || note.kind === "volatile") continue;
    const at = x(value(note));
    if (at < LEFT || at > width - RIGHT) continue;
    const special = isSpecial(note);
    const key = note.lane + colourOf(note) + Math.round(at);    // one mark for what falls on the same spot
    if (drawn.has(key) && !special) continue;
    drawn.add(key);
    element(svg, "circle", {cx: at, cy: y(note.lane), r: special ? 6 : note.kind === "flush" ? 2.2 : 3.4,
      fill: colourOf(note), stroke: special ? css("--ink") : "none", "stroke-width": 1.5, "data-note": note.index});
  }
  element(svg, "rect", {x: 0, y: 0, width: LEFT - 8, height, fill: css("--card")});
  for (const lane of data.lanes) element(svg, "text", {x: 14, y: y(lane) + 4, style: "font-weight:600"}, lane);
}
const marked = event => byIndex.get(Number(event.target.dataset.note ?? NaN));
chart.addEventListener("pointerover", event => {    // tips are made when they are wanted: there are thousands of marks
  const note = marked(event);
  if (note && !event.target.firstChild)
    element(event.target, "title", {}, `${seconds(note.time_ns)}  ${note.lane}  ${note.kind}\\n${note.text}`);
});
chart.addEventListener("click", event => { const note = marked(event); if (note) pick(note.index); });
let waiting = false;
function drawSoon() {   // once for all that moves before the next picture
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}
function pick(index) {
  const note = byIndex.get(index);
  if (!note) return;
  picked = new Set([index]);
  for (let up = note; up && up.cause != null; up = byIndex.get(up.cause)) picked.add(up.cause);
  const root = byIndex.get(note.cause ?? index);
  for (const effect of effects.get(root ? root.index : index) || []) picked.add(effect.index);
  detail.textContent = `${seconds(note.time_ns)}  ${note.lane}  ${note.kind}: ${note.text}`;
  draw();
}
chart.addEventListener("wheel", event => {
  event.preventDefault();
  const at = view[0] + (event.offsetX - LEFT) / (width - LEFT - RIGHT) * (view[1] - view[0]);
  const factor = event.deltaY < 0 ? 0.7 : 1 / 0.7, limit = whole();
  view = [Math.max(limit[1] * -0.02, at - (at - view[0]) * factor),
    Math.min(limit[1] * 1.02, at + (view[1] - at) * factor)];
  drawSoon();
}, {passive: false});
let held = null;
chart.addEventListener("pointerdown", event => { held = [event.clientX, [...view]]; });
addEventListener("pointermove", event => {
  if (!held) return;
  const moved = (event.clientX - held[0]) / (width - LEFT - RIGHT) * (held[1][1] - held[1][0]);
  if (Math.abs(event.clientX - held[0]) < 3) return;
  view = [held[1][0] - moved, held[1][1] - moved];
  drawSoon();
});
addEventListener("pointerup", () => { held = null; });
order.addEventListener("change", () => { view = data.culprit == null ? whole() : focusRange(); draw(); });
arrows.addEventListener("change", draw);
document.getElementById("focus").addEventListener("click", () => { view = focusRange(); draw(); });
document.getElementById("whole").addEventListener("click", () => { view = whole(); draw(); });
for (const line of document.querySelectorAll(".chain li"))
  line.addEventListener("click", () => { pick(Number(line.dataset.note)); });
if (data.culprit == null) document.getElementById("focus").remove();
addEventListener("resize", drawSoon);
if (data.left_out) detail.textContent = `${data.left_out} events of this long run are not on this page`;
view = whole();
draw();
"""
