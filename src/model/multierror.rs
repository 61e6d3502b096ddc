//! Several problems as one text.

/// Several problems in the form of Go's multierror package, which clients print as it is; `None` if there are none.
pub fn multierror(problems: &[String]) -> Option<String> {
    let count = problems.len();
    let noun = if count == 1 { "error" } else { "errors" };
    let lines: String = problems.iter().map(|p| format!("\t* {p}\n")).collect();
    (count > 0).then(|| format!("{count} {noun} occurred:\n{lines}\n"))
}
