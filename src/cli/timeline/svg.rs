//! Turns a timeline into a picture for a browser: one file without anything from elsewhere, in the colours that its reader prefers.

use std::fmt::Write;

use super::{State, Timeline, length, stamp};

const ROW: i64 = 22;
/// Where the axis begins, how long it is, and where the sums stand. In points.
const LEFT: i64 = 210;
const LENGTH: i64 = 600;
const RIGHT: i64 = LEFT + LENGTH + 10;
const WIDTH: i64 = RIGHT + 60;

const STYLE: &str = "text{font:13px sans-serif;fill:#222}.b{fill:#c62828}.u{fill:#9e9e9e}.w{fill:#e0e0e0}.p{fill:#1565c0}\
    @media(prefers-color-scheme:dark){svg{background:#1b1b1b}text{fill:#ddd}.w{fill:#3a3a3a}.b{fill:#ef5350}.p{fill:#64b5f6}}";

impl Timeline {
    /// An SVG document.
    pub fn to_svg(&self) -> String {
        let (first, last) = self.span().unwrap_or((0, 1));
        let x = |at: i64| LEFT + (at - first) * LENGTH / (last - first);
        let height = ROW * (self.rows.len() as i64 + 2);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\
             <style>{STYLE}</style>\n"
        );
        for (place, row) in self.rows.iter().enumerate() {
            let top = ROW * place as i64 + 8;
            let base = top + 13;
            let _ = writeln!(svg, "<text x=\"8\" y=\"{base}\">{}</text>", escaped(&row.name));
            let _ = writeln!(svg, "<rect class=\"w\" x=\"{LEFT}\" y=\"{top}\" width=\"{LENGTH}\" height=\"16\"/>");
            for (from, to, state) in row.spans(first, last) {
                let class = if state == State::Bad { "b" } else { "u" };
                let (from_x, width) = (x(from), (x(to) - x(from)).max(1));
                let title = format!("{} to {}, {}", stamp(from), stamp(to), length(to - from));
                let _ = writeln!(
                    svg,
                    "<rect class=\"{class}\" x=\"{from_x}\" y=\"{top}\" width=\"{width}\" height=\"16\"><title>{title}</title></rect>"
                );
            }
            for at in &row.points {
                let (x, title) = (x(*at), stamp(*at));
                let _ = writeln!(
                    svg,
                    "<circle class=\"p\" cx=\"{x}\" cy=\"{}\" r=\"5\"><title>{title}</title></circle>",
                    top + 8
                );
            }
            let _ = writeln!(svg, "<text x=\"{RIGHT}\" y=\"{base}\">{}</text>", row.sum(first, last));
        }
        let base = height - 14;
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{base}\">{}</text>", stamp(first));
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{}</text>\n</svg>",
            LEFT + LENGTH,
            stamp(last)
        );
        svg
    }
}

/// A name that a board or an event may have made up.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
