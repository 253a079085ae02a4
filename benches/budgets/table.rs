//! Turns figures into one table that can be read in a terminal and pasted into a page.

/// One figure of every program, and what it should be at most.
pub struct Row {
    name: String,
    goal: String,
    cells: Vec<String>,
    figures: Vec<Option<f64>>,
    missed: bool,
}

impl Row {
    /// `goal`: the most that the first column may be; `None` for a figure that is only told.
    pub fn new(name: impl Into<String>, goal: Option<f64>, figures: &[Option<f64>], show: fn(f64) -> String) -> Row {
        let cell = |figure: &Option<f64>| figure.map_or_else(|| "-".to_owned(), show);
        let ours = figures.first().copied().flatten();
        Row {
            name: name.into(),
            goal: goal.map_or_else(String::new, |goal| format!("<= {}", show(goal))),
            cells: figures.iter().map(cell).collect(),
            figures: figures.to_vec(),
            missed: goal.zip(ours).is_some_and(|(goal, ours)| ours > goal),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// As they are printed.
    pub fn cells(&self) -> &[String] {
        &self.cells
    }

    pub fn figures(&self) -> &[Option<f64>] {
        &self.figures
    }

    /// A remark behind one figure.
    pub fn with_remark(mut self, column: usize, remark: Option<String>) -> Row {
        if let (Some(cell), Some(remark)) = (self.cells.get_mut(column), remark) {
            cell.push_str(&format!(" {remark}"));
        }
        self
    }
}

/// The whole table, and last a line that names what was missed.
pub fn print(titles: &[String], rows: &[Row]) {
    let mut lines = vec![[vec![String::new(), "goal".to_owned()], titles.to_vec()].concat()];
    lines.extend(rows.iter().map(|row| {
        let mut cells = row.cells.clone();
        if let (true, Some(ours)) = (row.missed, cells.first_mut()) {
            *ours = format!("**{ours}**");
        }
        [vec![row.name.clone(), row.goal.clone()], cells].concat()
    }));
    let columns = titles.len() + 2;
    let width = |column: usize| lines.iter().filter_map(|line| Some(line.get(column)?.chars().count())).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for (number, line) in lines.iter().enumerate() {
        let padded: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        println!("| {} |", padded.join(" | "));
        if number == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            println!("| {} |", rules.join(" | "));
        }
    }
    let missed: Vec<&str> = rows.iter().filter(|row| row.missed).map(|row| row.name.as_str()).collect();
    let is_open = |row: &&Row| !row.goal.is_empty() && row.figures.first().copied().flatten().is_none();
    let open: Vec<&str> = rows.iter().filter(is_open).map(|row| row.name.as_str()).collect();
    match (missed.is_empty(), open.is_empty()) {
        (true, true) => println!("\nEvery goal is met."),
        (true, false) => println!("\nEvery goal that was measured is met."),
        (false, _) => println!("\nMissed: {}.", missed.join(", ")),
    }
    if !open.is_empty() {
        println!("Not measured: {}.", open.join(", "));
    }
}

pub fn whole(figure: f64) -> String {
    let digits = format!("{:.0}", figure.abs());
    let mut text = if figure < 0.0 { "-".to_owned() } else { String::new() };
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub fn tenths(figure: f64) -> String {
    if figure < 1000.0 { format!("{figure:.1}") } else { whole(figure) }
}

pub fn hundredths(figure: f64) -> String {
    format!("{figure:.2}")
}

pub fn megabytes(bytes: f64) -> String {
    format!("{:.2} MB", bytes / 1e6)
}

pub fn milliseconds(figure: f64) -> String {
    if figure < 10.0 { format!("{figure:.2} ms") } else { format!("{} ms", whole(figure)) }
}

pub fn seconds(figure: f64) -> String {
    format!("{} s", tenths(figure))
}
