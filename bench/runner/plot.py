"""A plot of ratios as SVG: a row for each workload, a dot for each configuration, a line for its quartiles; logarithmic."""
import math
from xml.sax.saxutils import escape

# One colour for a configuration in all plots.
COLOURS = {"tags": "#c1121f", "sites4": "#f08c00", "mimalloc": "#1971c2", "jemalloc": "#2f9e44", "snmalloc": "#6741d9"}
OTHER = "#495057"
LEFT, WIDTH, ROW, TOP = 130, 560, 24, 74


def ticks(low, high):
    """Round numbers within the range: 1, 2 and 5 times powers of ten, and some between where there is room."""
    steps = (1, 2, 5) if high / low > 4 else (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 4, 5)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    return sorted({round(s * 10.0**p, 6) for p in powers for s in steps if low <= s * 10.0**p <= high})


def dots(title, rows, configs):
    """rows: [(workload, {config: (q1, median, q3)})]. Returns the text of an SVG file."""
    values = [x for _, r in rows for c in configs for x in r.get(c, ()) if x > 0]
    if not values:
        return None
    low, high = min([*values, 0.9]) / 1.05, max([*values, 1.1]) * 1.05
    at = lambda v: LEFT + WIDTH * math.log(v / low) / math.log(high / low)
    height = TOP + ROW * len(rows) + 34
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="100%" height="100%" fill="#fff"/><text x="8" y="20" font-size="14">{escape(title)}</text>']
    x = 8
    for c in configs:
        out.append(f'<circle cx="{x + 5}" cy="42" r="4.5" fill="{COLOURS.get(c, OTHER)}"/><text x="{x + 14}" y="46">{escape(c)}</text>')
        x += 26 + 7 * len(c)
    for t in ticks(low, high):
        heavy = "#666" if t == 1 else "#ddd"
        out.append(f'<line x1="{at(t):.1f}" x2="{at(t):.1f}" y1="{TOP - 12}" y2="{height - 28}" stroke="{heavy}"/>'
                   f'<text x="{at(t):.1f}" y="{height - 12}" text-anchor="middle">{t:g}</text>')
    for k, (name, row) in enumerate(rows):
        y = TOP + ROW * k
        out.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        for i, c in enumerate(configs):
            q1, mid, q3 = row.get(c, (0, 0, 0))
            if not mid > 0:
                continue
            here = y + (i - (len(configs) - 1) / 2) * 2.6
            colour = COLOURS.get(c, OTHER)
            out.append(f'<line x1="{at(q1):.1f}" x2="{at(q3):.1f}" y1="{here:.1f}" y2="{here:.1f}" stroke="{colour}" stroke-width="2"/>'
                       f'<circle cx="{at(mid):.1f}" cy="{here:.1f}" r="4.5" fill="{colour}" fill-opacity="0.85">'
                       f"<title>{escape(f'{name}, {c}: {mid:.2f}')}</title></circle>")
    return "\n".join([*out, "</svg>"]) + "\n"
