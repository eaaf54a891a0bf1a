//! Tables of figures, for a terminal and as Markdown.

/// Characters of the first column on a terminal, and of each other one.
const TITLE_WIDTH: usize = 44;
const CELL_WIDTH: usize = 11;

/// A table: a column for each of the things that are compared.
pub struct Table {
    /// The heading of the first column.
    pub heading: String,
    /// The headings of the other columns.
    pub columns: Vec<String>,
    /// The lines.
    pub rows: Vec<Row>,
}

/// A line of a table.
pub struct Row {
    /// The name of the compared figure.
    pub title: String,
    /// A figure for each column.
    pub cells: Vec<String>,
    /// The column whose figure is the best, if one is told apart.
    pub best: Option<usize>,
}

impl Table {
    /// The table for a terminal; the best of a line has a star.
    pub fn text(&self) -> String {
        let mut text = format!("{:<TITLE_WIDTH$}", self.heading);
        for column in &self.columns {
            text += &format!("{column:>CELL_WIDTH$}");
        }
        text += "\n";
        for row in &self.rows {
            let title = format!("  {}", row.title);
            text += &format!("{title:<TITLE_WIDTH$}");
            for (column, cell) in row.cells.iter().enumerate() {
                let star = if row.best == Some(column) { "*" } else { "" };
                let starred = format!("{star}{cell}");
                text += &format!("{starred:>CELL_WIDTH$}");
            }
            text += "\n";
        }
        text
    }

    /// The table in Markdown; the best of a line is bold.
    pub fn markdown(&self) -> String {
        let mut text = format!("| {} | {} |\n", self.heading, self.columns.join(" | "));
        text += &format!("| --- |{}\n", " --- |".repeat(self.columns.len()));
        for row in &self.rows {
            text += &format!("| {} |", row.title);
            for (column, cell) in row.cells.iter().enumerate() {
                text += &if row.best == Some(column) {
                    format!(" **{cell}** |")
                } else {
                    format!(" {cell} |")
                };
            }
            text += "\n";
        }
        text
    }
}

#[cfg(test)]
mod tests;
