//! Text in columns.

/// Lines whose cells stand under each other, two spaces apart. The first row is the head; the last cell of a row is not
/// padded.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths);
        let padded: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A row of the table.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> [String; N] {
    cells.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_under_each_other() {
        let rows = [
            row(["Node", "Tags"]),
            row(["é", "a=b"]),
            row(["longer", ""]),
        ];
        assert_eq!(columns(&rows), ["Node    Tags", "é       a=b", "longer"]);
    }
}
