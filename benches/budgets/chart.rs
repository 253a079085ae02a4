//! Turns some rows of the table into a picture: for each a group of bars, as long as they are beside the longest of the group.

use std::fmt::Write;
use std::path::PathBuf;

use super::cluster::Result;
use super::figures;
use super::programs::ROOT;
use super::table::Row;

/// What people compare.
const ROWS: [&str; 4] = ["IP bytes per day", "processor time per day", "memory (RSS)", figures::WAKE_UPS];
const BAR: usize = 20;
/// Where bars begin, and how long the longest is. In points.
const LEFT: usize = 160;
const LENGTH: f64 = 420.0;
const WIDTH: usize = 820;
const STYLE: &str = "text{font:13px sans-serif;fill:#222}.h{font-weight:bold}.o{fill:#1565c0}.t{fill:#9e9e9e}\
    @media(prefers-color-scheme:dark){svg{background:#1b1b1b}text{fill:#ddd}.o{fill:#64b5f6}.t{fill:#757575}}";

/// Writes it below the build's folder. `titles`: of the columns that are drawn, ours first. Answers where it is.
pub fn write(titles: &[String], rows: &[Row]) -> Result<PathBuf> {
    let file = PathBuf::from(ROOT).join("target/costs.svg");
    std::fs::write(&file, svg(titles, rows)).map_err(|why| format!("{}: {why}", file.display()))?;
    Ok(file)
}

fn svg(titles: &[String], rows: &[Row]) -> String {
    let (mut bars, mut y) = (String::new(), 8);
    for row in ROWS.iter().filter_map(|name| rows.iter().find(|row| row.name() == *name)) {
        let _ = writeln!(bars, "<text class=\"h\" x=\"8\" y=\"{}\">{}</text>", y + 14, row.name());
        y += BAR;
        let longest = row.figures().iter().take(titles.len()).flatten().fold(f64::MIN_POSITIVE, |a, b| a.max(*b));
        for (place, (title, cell)) in titles.iter().zip(row.cells()).enumerate() {
            let length = row.figures().get(place).copied().flatten().unwrap_or(0.0) / longest * LENGTH;
            let class = if place == 0 { "o" } else { "t" };
            let base = y + 14;
            let _ = writeln!(bars, "<text x=\"8\" y=\"{base}\">{title}</text>");
            let _ = writeln!(
                bars,
                "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{}\" width=\"{length:.1}\" height=\"14\"/>\
                 <text x=\"{:.1}\" y=\"{base}\">{cell}</text>",
                y + 3,
                LEFT as f64 + length + 8.0
            );
            y += BAR;
        }
        y += BAR / 2;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" width=\"{WIDTH}\" height=\"{y}\">\
         <style>{STYLE}</style>\n{bars}</svg>\n"
    )
}
