//! Flame graphs: folded stacks, and a picture of them.
//!
//! A frame's width is the weight of all stacks through it; its children stand on it, in order of their names. The picture is
//! plain SVG: each frame says its name and weight when pointed at, and needs no script.

use std::collections::BTreeMap;
use std::io::{self, Write};

const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
/// Narrower frames are not drawn.
const LEAST: f64 = 0.2;
/// Width of a letter.
const LETTER: f64 = 7.0;
/// Most frames of a stack that are drawn.
const DEPTH: usize = 200;

/// Writes lines `outer;inner WEIGHT`.
pub(crate) fn write_folded(
    out: &mut dyn Write,
    stacks: &BTreeMap<Vec<String>, u64>,
) -> io::Result<()> {
    for (stack, weight) in stacks {
        writeln!(out, "{} {weight}", stack.join(";"))?;
    }
    Ok(())
}

struct Frame {
    depth: usize,
    start: u64,
    weight: u64,
    name: String,
}

/// All frames of stacks, which are sorted, so that equal ones are neighbours.
fn frames(stacks: &BTreeMap<Vec<String>, u64>) -> Vec<Frame> {
    let mut done = Vec::new();
    let mut open: Vec<Frame> = Vec::new();
    let mut at = 0_u64;
    for (stack, weight) in stacks {
        let stack = &stack[..stack.len().min(DEPTH)];
        let same = open
            .iter()
            .zip(stack)
            .take_while(|(f, name)| f.name == **name)
            .count();
        done.extend(open.drain(same..));
        for frame in &mut open {
            frame.weight += weight;
        }
        for (depth, name) in stack.iter().enumerate().skip(same) {
            open.push(Frame {
                depth,
                start: at,
                weight: *weight,
                name: name.clone(),
            });
        }
        at += weight;
    }
    done.extend(open);
    done
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Writes the picture.
pub(crate) fn write_svg(
    out: &mut dyn Write,
    stacks: &BTreeMap<Vec<String>, u64>,
    title: &str,
) -> io::Result<()> {
    let frames = frames(stacks);
    let total = stacks.values().sum::<u64>().max(1) as f64;
    let deepest = frames.iter().map(|f| f.depth + 1).max().unwrap_or(0);
    let height = (deepest as f64 + 2.0) * ROW + 20.0;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"monospace\" font-size=\"12\">"
    )?;
    writeln!(
        out,
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/><text x=\"{}\" y=\"16\" text-anchor=\"middle\">{}</text>",
        WIDTH / 2.0,
        escape(title)
    )?;
    for frame in frames {
        let (x, width) = (
            frame.start as f64 / total * WIDTH,
            frame.weight as f64 / total * WIDTH,
        );
        if width < LEAST {
            continue;
        }
        let y = height - ROW * (frame.depth as f64 + 1.0) - 4.0;
        let hash = frame
            .name
            .bytes()
            .fold(7_u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)));
        let colour = format!("hsl({},70%,{}%)", 10 + hash % 45, 62 + hash / 64 % 14);
        let name = escape(&frame.name);
        let share = frame.weight as f64 / total * 100.0;
        write!(
            out,
            "<g><title>{name} ({}, {share:.2} %)</title><rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{:.2}\" fill=\"{colour}\" stroke=\"#fff\" stroke-width=\"0.5\"/>",
            frame.weight,
            ROW - 1.0
        )?;
        let letters = (width / LETTER) as usize;
        if letters > 3 {
            let cut: String = frame.name.chars().take(letters.saturating_sub(1)).collect();
            write!(
                out,
                "<text x=\"{:.2}\" y=\"{:.2}\">{}</text>",
                x + 3.0,
                y + 12.0,
                escape(&cut)
            )?;
        }
        writeln!(out, "</g>")?;
    }
    writeln!(out, "</svg>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks() -> BTreeMap<Vec<String>, u64> {
        let stack = |text: &str| text.split(';').map(str::to_owned).collect();
        [(stack("a;b<"), 3), (stack("a;c"), 5), (stack("d"), 2)].into()
    }

    #[test]
    fn widths_add_up() {
        let frames = frames(&stacks());
        let of = |name: &str| {
            frames
                .iter()
                .find(|f| f.name == name)
                .map(|f| (f.depth, f.start, f.weight))
        };
        assert_eq!(of("a"), Some((0, 0, 8)));
        assert_eq!(of("c"), Some((1, 3, 5)));
        assert_eq!(of("d"), Some((0, 8, 2)));
    }

    #[test]
    fn names_are_escaped() {
        let mut out = Vec::new();
        write_svg(&mut out, &stacks(), "t").expect("memory");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("b&lt; (3, 30.00 %)") && !text.contains("b<"));
    }
}
