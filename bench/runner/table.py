"""Tables as text and as Markdown."""
import math


def number(x, digits=3):
    """So many significant digits, without an exponent: 0.0123, 1.23, 123, 12300."""
    if x is None or math.isnan(x):
        return "–"
    if x == 0 or math.isinf(x):
        return f"{x:g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(x))))
    return f"{x:.{places}f}"


def ratio(x):
    """Two places, as all ratios are shown."""
    return "–" if x is None or math.isnan(x) else f"{x:.2f}"


def _widths(head, rows):
    return [max(len(str(r[i])) for r in [head, *rows]) for i in range(len(head))]


def text(head, rows):
    """Columns; the first to the left, the others to the right."""
    w = _widths(head, rows)

    def line(r):
        return "  ".join(str(c).ljust(w[i]) if i == 0 else str(c).rjust(w[i]) for i, c in enumerate(r)).rstrip()

    return "\n".join([line(head), "  ".join("-" * x for x in w), *map(line, rows)]) + "\n"


def markdown(head, rows, left=1):
    """`left` columns to the left, the others to the right."""
    def cell(c):
        return str(c).replace("|", "\\|")

    marks = ["---" if i < left else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(map(cell, r)) + " |" for r in [head, marks, *rows]) + "\n"
