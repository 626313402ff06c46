"""Plots rate and memory in two panels with a logarithmic x axis, as SVG, and prints them as a table."""

import math

COLOURS = {"memory": "#2563eb", "sqlite": "#b45309"}
WIDTH, HEIGHT, LEFT, TOP = 330, 200, 62, 34


def nice(top):
    """Returns the next round number."""
    size = 10 ** math.floor(math.log10(top or 1))
    return next(step * size for step in (1, 2, 2.5, 5, 10) if step * size >= top)


def short(number):
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


def panel(lines, key, title, x_title, offset):
    xs = [point["x"] for points in lines.values() for point in points]
    low, high = math.log10(max(min(xs), 1)), math.log10(max(xs))
    high = high if high > low else low + 1
    top = nice(max(point[key] or 0 for points in lines.values() for point in points))
    across = lambda x: offset + LEFT + (math.log10(max(x, 1)) - low) / (high - low) * WIDTH
    up = lambda y: TOP + HEIGHT - (y or 0) / top * HEIGHT
    out = [f'<text x="{offset + LEFT}" y="{TOP - 14}" class="title">{title}</text>']
    for part in range(5):
        y = top * part / 4
        out.append(f'<line x1="{offset + LEFT}" x2="{offset + LEFT + WIDTH}" y1="{up(y):.1f}" y2="{up(y):.1f}" class="grid"/>')
        out.append(f'<text x="{offset + LEFT - 6}" y="{up(y) + 4:.1f}" text-anchor="end">{short(y)}</text>')
    for power in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1):
        out.append(f'<text x="{across(10 ** power):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{short(10 ** power)}</text>')
    out.append(f'<text x="{offset + LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle">{x_title}</text>')
    for place, (name, points) in enumerate(lines.items()):
        colour = COLOURS[name]
        path = " ".join(f"{across(point['x']):.1f},{up(point[key]):.1f}" for point in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{across(p["x"]):.1f}" cy="{up(p[key]):.1f}" r="3" fill="{colour}"/>' for p in points]
        out.append(f'<text x="{offset + LEFT + WIDTH - 60 * (len(lines) - place) + 60}" y="{TOP - 14}" text-anchor="end" style="fill: {colour}">{name}</text>')
    return out


def svg(lines, x, rate, memory):
    style = "text { font: 11px system-ui, sans-serif; fill: #444 } .title { font-weight: 600 } .grid { stroke: #ddd }"
    body = panel(lines, "rate", rate, x, 0) + panel(lines, "memory", memory, x, LEFT + WIDTH + 20)
    size = f"{2 * (LEFT + WIDTH) + 40} {TOP + HEIGHT + 46}"
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}">', f"<style>{style}</style>",
                      '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>"]) + "\n"


def table(lines, x, rate, memory):
    out = [f"| store | {x} | {rate} | {memory} | failed |", "|---|---|---|---|---|"]
    for name, points in lines.items():
        for point in points:
            shown = f"{point['rate']:,.0f}" if point["rate"] else "-"
            out.append(f"| {name} | {point['x']:,} | {shown} | {point['memory']:,.1f} | {point['bad']} |")
    return "\n".join(out) + "\n"
