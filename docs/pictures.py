#!/usr/bin/env python3
"""Draws the pictures of the pages.

    docs/pictures.py [FOLDER]    default: docs/pictures

The times in the pictures show an order of events, not a measurement. layers.svg follows the rules of the simulator: a
layer computes when its copy is complete, and copies run one after the other.
"""
import pathlib
import sys

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "pictures")
GPU, HOST, PEER, DISK, WAIT, INK, PALE = "#2a9d8f", "#e9a23b", "#457b9d", "#8d8d8d", "#d1495b", "#263238", "#eceff1"


class Picture:
    def __init__(self, name, width, height, title):
        self.name, self.width, self.height = name, width, height
        self.parts = [f'<title>{title}</title>', f'<rect width="{width}" height="{height}" fill="#ffffff"/>']

    def box(self, x, y, width, height, fill, text="", ink="#ffffff", size=13, edge=None):
        stroke = f' stroke="{edge}"' if edge else ""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="{fill}"{stroke}/>')
        if text:
            self.text(x + width / 2, y + height / 2 + size * 0.35, text, ink, size, "middle")

    def text(self, x, y, text, ink=INK, size=13, anchor="start", weight="normal"):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" fill="{ink}" font-size="{size}" font-weight="{weight}" '
                          f'text-anchor="{anchor}">{text}</text>')

    def arrow(self, x1, y1, x2, y2, ink=INK, both=False):
        start = ' marker-start="url(#arrow)"' if both else ""
        self.parts.append(f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" stroke="{ink}" stroke-width="2" fill="none" '
                          f'marker-end="url(#arrow)"{start}/>')

    def line(self, x1, y1, x2, y2, ink="#b0bec5", dash=""):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" stroke="{ink}" fill="none"{dashes}/>')

    def save(self):
        arrow = ('<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
                 'orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="#263238"/></marker></defs>')
        text = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" font-family="sans-serif">\n{arrow}\n' + "\n".join(self.parts) + "\n</svg>\n")
        (FOLDER / self.name).write_text(text)


def how():
    """What a run consists of."""
    p = Picture("how.svg", 860, 190, "A trace, a scheduler, a latency model and the report")
    steps = [("requests", "trace or workload", PEER), ("policy", "who runs, where state lives", HOST),
             ("executor", "GPU, CPU and links", GPU), ("report", "latency, throughput, memory", DISK)]
    for i, (name, what, fill) in enumerate(steps):
        x = 15 + i * 215
        p.box(x, 30, 185, 62, fill, name, size=17)
        p.text(x + 92.5, 112, what, size=13, anchor="middle")
        if i:
            p.arrow(x - 28, 61, x - 3, 61)
    p.text(120 + 215 * 2 - 12, 158, "latency model of the GPU, fitted to measured kernels", anchor="middle")
    p.arrow(107 + 215 * 2, 143, 107 + 215 * 2, 119)
    p.arrow(420, 22, 300, 22)
    p.text(360, 16, "time, finished tokens", size=11, anchor="middle")
    p.save()


def tiers():
    """Where state lives, and the links between these places."""
    p = Picture("tiers.svg", 860, 330, "GPU memory, host memory, memory of another GPU, disk, and the links between them")
    p.box(300, 20, 260, 110, "#e0f2f0", edge=GPU)
    p.text(430, 42, "GPU memory (HBM)", anchor="middle", weight="bold")
    for i, name in enumerate(["weights", "KV in use", "KV kept"]):
        p.box(315 + i * 78, 58, 72, 54, GPU, name, size=12)
    p.box(300, 205, 260, 110, "#fdf3e1", edge=HOST)
    p.text(430, 227, "host memory (DRAM) and CPU", anchor="middle", weight="bold")
    for i, name in enumerate(["weights", "KV in use", "KV kept"]):
        p.box(315 + i * 78, 243, 72, 54, HOST, name, size=12)
    p.box(15, 20, 190, 110, "#e3edf3", edge=PEER)
    p.text(110, 42, "another GPU", anchor="middle", weight="bold")
    p.box(30, 58, 160, 54, PEER, "lent memory", size=12)
    p.box(655, 205, 190, 110, "#f3f3f3", edge=DISK)
    p.text(750, 227, "disk", anchor="middle", weight="bold")
    p.box(670, 243, 160, 54, DISK, "KV kept", size=12)
    p.arrow(430, 132, 430, 203, both=True)
    p.text(442, 172, "PCIe or NVLink-C2C")
    p.arrow(207, 75, 298, 75, both=True)
    p.text(252, 66, "NVLink", anchor="middle")
    p.arrow(562, 260, 653, 260, both=True)
    p.arrow(110, 132, 298, 250, both=True)
    p.text(60, 205, "when the lender wants", size=12)
    p.text(60, 221, "its memory back", size=12)
    p.text(575, 60, "weights: Select-N, DeepSpeed, vLLM, FlexGen", size=12)
    p.text(575, 80, "KV in use: Pie (layers), NEO (CPU attention)", size=12)
    p.text(575, 100, "KV kept: Pensieve, prefix cache, swapping", size=12)
    p.save()


def schedule(layers, on_host, copy, slots):
    """Start and end of each layer's computation (1 unit each) and of each copy. A copy needs a free slot: one is freed
    when the layer that used it has computed. The copies of the first `slots` layers start at 0."""
    computed, copied, ends = [], {}, []
    free, last = [0.0] * slots, 0.0
    for layer in range(layers):
        if layer in on_host:
            start = max(last, free.pop(0))
            last = start + copy
            copied[layer] = (start, last)
        start = max(ends[-1] if ends else 0.0, copied.get(layer, (0, 0))[1])
        ends.append(start + 1)
        computed.append((start, start + 1))
        if layer in on_host:
            free.append(start + 1)
    return computed, copied


def layers():
    """Copies of layers beside the computation of other layers."""
    p = Picture("layers.svg", 860, 400, "Layers on the host: copies that computation hides, and copies that the GPU waits for")
    left, unit = 130, 48
    rows = [("every 4th layer on the host: copies are hidden", [3, 7], 2.6),
            ("every 2nd layer on the host: the GPU waits", [1, 3, 5, 7], 2.6)]
    for i, (title, on_host, copy) in enumerate(rows):
        top = 20 + i * 185
        computed, copied = schedule(8, on_host, copy, 1)
        p.text(15, top + 12, title, weight="bold")
        p.text(15, top + 50, "GPU computes")
        p.text(15, top + 94, "copy to GPU")
        previous = 0.0
        for layer, (start, end) in enumerate(computed):
            if start > previous + 1e-9:
                p.box(left + previous * unit, top + 30, (start - previous) * unit - 1, 32, "#f8dde1", "waits", WAIT, 11)
            p.box(left + start * unit, top + 30, unit - 1, 32, HOST if layer in on_host else GPU, str(layer + 1))
            previous = end
        for layer, (start, end) in copied.items():
            p.box(left + start * unit, top + 74, (end - start) * unit - 1, 32, HOST, str(layer + 1))
        p.line(left, top + 118, left + 14.6 * unit, top + 118)
        p.text(left + 14.6 * unit, top + 136, "time", size=11, anchor="end")
    p.box(left, 372, 16, 16, GPU)
    p.text(left + 22, 385, "layer on the GPU", size=12)
    p.box(left + 150, 372, 16, 16, HOST)
    p.text(left + 172, 385, "layer whose weights are on the host", size=12)
    p.save()


def cpu_attention():
    """NEO: two sub-batches take turns."""
    p = Picture("cpu-attention.svg", 860, 210, "Two sub-batches: the GPU computes one while the CPU attends for the other")
    left, unit = 130, 88
    p.text(15, 48, "GPU")
    p.text(15, 98, "CPU")
    p.text(15, 148, "link")
    for i in range(8):
        which = "A" if i % 2 == 0 else "B"
        fill = GPU if which == "A" else PEER
        layer = i // 2 + 1
        p.box(left + i * unit, 28, unit - 3, 34, fill, f"{which}: layer {layer}", size=12)
        if i < 7:
            p.box(left + (i + 1) * unit, 78, unit - 14, 34, HOST, f"{which} attends", "#263238", 12)
            p.box(left + (i + 0.82) * unit, 128, 0.3 * unit, 24, DISK, "q k v", size=9)
    p.line(left, 168, left + 8 * unit, 168)
    p.text(left + 8 * unit, 186, "time", size=11, anchor="end")
    p.text(left, 200, "A and B: sub-batches. Queries, keys and values of new tokens cross the link; old KV stays on the host.", size=12)
    p.save()


def turns():
    """KV of a conversation between turns."""
    p = Picture("turns.svg", 860, 300, "Where the KV of a conversation is between its turns")
    left = 190
    marks = [(0, "turn 1"), (150, "answer"), (430, "turn 2")]
    for x, name in marks:
        p.line(left + x, 30, left + x, 270, dash="4 4")
        p.text(left + x, 22, name, size=12, anchor="middle")
    rows = [("nothing is kept", [], [(430, 110, "compute all", WAIT)]),
            ("kept on the GPU", [(150, 280, "KV rests in GPU memory", GPU)], [(430, 30, "", WAIT)]),
            ("moved to the host", [(150, 40, "GPU", GPU), (190, 240, "KV rests in host memory", HOST)],
             [(430, 44, "load", PEER), (474, 30, "", WAIT)]),
            ("partly dropped", [(150, 40, "GPU", GPU), (190, 240, "a part rests in host memory", HOST)],
             [(430, 36, "load", PEER), (466, 62, "compute", WAIT)])]
    for i, (name, resting, coming) in enumerate(rows):
        y = 44 + i * 58
        p.text(15, y + 21, name)
        p.box(left, y, 148, 32, PALE, "turn 1 is served", INK, 11)
        for x, width, text, fill in resting + coming:
            p.box(left + x, y, width - 2, 32, fill, text, size=11)
        end = coming[-1][0] + coming[-1][1]
        p.box(left + end, y, 570 - end + 60, 32, PALE, "generate", INK, 11)
    p.text(left + 290, 292, "think time: other requests use the GPU", size=12, anchor="middle")
    p.save()


def slices():
    """First come, first served against fair slices."""
    p = Picture("slices.svg", 860, 270, "First come, first served against fair slices, with room for two requests")
    left, unit = 190, 46
    fills = {"a": GPU, "b": PEER, "c": HOST, "d": WAIT}

    def rows(top, title, plan):
        p.text(15, top - 10, title, weight="bold")
        for row, seats in enumerate(plan):
            p.text(15, top + row * 36 + 20, f"place {row + 1} on the GPU")
            at = 0.0
            for who, length in seats:
                if who == "-":
                    p.box(left + at * unit, top + row * 36, length * unit - 2, 30, "#cfd8dc", "", INK, 10)
                else:
                    p.box(left + at * unit, top + row * 36, length * unit - 2, 30, fills[who], f"request {who}", size=11)
                at += length
    rows(40, "first come, first served: c and d wait for whole answers",
         [[("a", 6), ("c", 6)], [("b", 6), ("d", 6)]])
    rows(155, "fair slices: c and d have a first token after one slice; grey: copies of a page-out and page-in",
         [[("a", 2), ("-", 0.4), ("c", 2), ("-", 0.4)] * 2 + [("a", 2), ("-", 0.4), ("c", 2)],
          [("b", 2), ("-", 0.4), ("d", 2), ("-", 0.4)] * 2 + [("b", 2), ("-", 0.4), ("d", 2)]])
    p.text(left, 258, "c and d arrive just after a and b. Time runs to the right.", size=12)
    p.save()


for draw in (how, tiers, layers, cpu_attention, turns, slices):
    draw()
