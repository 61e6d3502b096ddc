//! Text to expression, by recursive descent.

use crate::model::filter::{Expr, FilterError, MAX_DEPTH, Test, regex};

pub(super) fn parse(text: &str) -> Result<Expr, FilterError> {
    let mut parser = Parser { text, at: 0 };
    let expr = parser.or(0)?;
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.error("\"and\", \"or\" or the end"));
    }
    Ok(expr)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

/// The operators between a selector and a value, longest first; whether they are negated.
const OPERATORS: [(&[&str], Operator, bool); 9] = [
    (&["=="], Operator::Equal, false),
    (&["!="], Operator::Equal, true),
    (&["is", "not", "empty"], Operator::Empty, true),
    (&["is", "empty"], Operator::Empty, false),
    (&["not", "contains"], Operator::Contains, true),
    (&["contains"], Operator::Contains, false),
    (&["not", "matches"], Operator::Matches, true),
    (&["matches"], Operator::Matches, false),
    (&["not", "in"], Operator::In, true),
];

#[derive(Clone, Copy, PartialEq)]
enum Operator {
    Equal,
    Empty,
    Contains,
    Matches,
    In,
}

/// A value, and the path that it would be as a selector.
struct Operand {
    text: String,
    path: Option<Vec<String>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn or(&mut self, depth: usize) -> Result<Expr, FilterError> {
        let mut parts = vec![self.and(depth)?];
        while self.word("or") {
            parts.push(self.and(depth)?);
        }
        Ok(single(parts, Expr::Or))
    }

    fn and(&mut self, depth: usize) -> Result<Expr, FilterError> {
        let mut parts = vec![self.not(depth)?];
        while self.word("and") {
            parts.push(self.not(depth)?);
        }
        Ok(single(parts, Expr::And))
    }

    fn not(&mut self, depth: usize) -> Result<Expr, FilterError> {
        if depth >= MAX_DEPTH {
            return Err(FilterError::TooDeep);
        }
        if self.word("not") {
            return Ok(Expr::Not(Box::new(self.not(depth + 1)?)));
        }
        if self.symbol("(") {
            let inner = self.or(depth + 1)?;
            if !self.symbol(")") {
                return Err(self.error("\")\""));
            }
            return Ok(inner);
        }
        self.matching()
    }

    fn matching(&mut self) -> Result<Expr, FilterError> {
        let left = self.operand("a selector or a value")?;
        let Some((operator, negated)) = self.operator() else {
            return Err(self.error(
                "one of ==, !=, in, not in, contains, not contains, matches, not matches, is empty, is not empty",
            ));
        };
        if operator == Operator::In {
            let right = self.operand("a selector")?;
            let test = Test::Holds(left.text);
            return self.on(right.path, right.at, test, negated);
        }
        let test = match operator {
            Operator::Empty | Operator::In => Test::Empty,
            Operator::Equal => Test::Equal(self.operand("a value")?.text),
            Operator::Contains => Test::Holds(self.operand("a value")?.text),
            Operator::Matches => Test::Matches(regex(&self.operand("a value")?.text)?),
        };
        self.on(left.path, left.at, test, negated)
    }

    fn on(
        &mut self,
        path: Option<Vec<String>>,
        at: usize,
        test: Test,
        negated: bool,
    ) -> Result<Expr, FilterError> {
        let Some(path) = path else {
            self.at = at;
            return Err(self.error("a selector"));
        };
        Ok(Expr::Match {
            path,
            test,
            negated,
        })
    }

    fn operator(&mut self) -> Option<(Operator, bool)> {
        let start = self.at;
        for (words, operator, negated) in OPERATORS {
            if words.iter().all(|w| match w.starts_with(['=', '!']) {
                true => self.symbol(w),
                false => self.word(w),
            }) {
                return Some((operator, negated));
            }
            self.at = start;
        }
        self.word("in").then_some((Operator::In, false))
    }

    fn operand(&mut self, expected: &'static str) -> Result<Operand, FilterError> {
        self.skip_space();
        let at = self.at;
        match self.peek() {
            Some('"' | '`') => Ok(Operand {
                text: self.quoted()?,
                path: None,
                at,
            }),
            Some(c) if c.is_ascii_digit() || c == '-' => self.number(expected),
            Some(c) if c.is_ascii_alphabetic() => {
                let path = self.selector()?;
                let text = path.join(".");
                Ok(Operand {
                    text,
                    path: Some(path),
                    at,
                })
            }
            _ => Err(self.error(expected)),
        }
    }

    fn number(&mut self, expected: &'static str) -> Result<Operand, FilterError> {
        let at = self.at;
        let rest = self.rest();
        let len = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'))
            .unwrap_or(rest.len());
        let text = rest.get(..len).unwrap_or_default();
        let ends = rest.get(len..).and_then(|r| r.chars().next());
        if text.parse::<f64>().is_err() || ends.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            return Err(self.error(expected));
        }
        self.at += len;
        Ok(Operand {
            text: text.to_owned(),
            path: None,
            at,
        })
    }

    fn selector(&mut self) -> Result<Vec<String>, FilterError> {
        let mut path = vec![self.name()?];
        loop {
            match self.peek() {
                Some('.') => {
                    self.at += 1;
                    path.push(self.name()?);
                }
                Some('[') => {
                    self.at += 1;
                    self.skip_space();
                    path.push(self.quoted()?);
                    if !self.symbol("]") {
                        return Err(self.error("\"]\""));
                    }
                }
                _ => return Ok(path),
            }
        }
    }

    fn name(&mut self) -> Result<String, FilterError> {
        let rest = self.rest();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '/';
        let len = rest.find(|c| !word(c)).unwrap_or(rest.len());
        let name = rest.get(..len).unwrap_or_default();
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(self.error("a name that begins with a letter"));
        }
        self.at += len;
        Ok(name.to_owned())
    }

    /// Backquotes keep everything as it is; in double quotes a backslash escapes.
    fn quoted(&mut self) -> Result<String, FilterError> {
        let mut chars = self.rest().char_indices();
        let quote = match chars.next() {
            Some((_, quote @ ('"' | '`'))) => quote,
            _ => return Err(self.error("a quoted text")),
        };
        let mut text = String::new();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.at += at + 1;
                return Ok(text);
            }
            if c != '\\' || quote == '`' {
                text.push(c);
                continue;
            }
            match chars.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                Some((_, 'r')) => text.push('\r'),
                Some((_, c @ ('"' | '\\'))) => text.push(c),
                _ => {
                    self.at += at;
                    return Err(self.error("one of the escapes \\\" \\\\ \\n \\r \\t"));
                }
            }
        }
        self.at = self.text.len();
        Err(self.error("a closing quote"))
    }

    /// Takes `word` if it stands here as a whole word.
    fn word(&mut self, word: &str) -> bool {
        self.skip_space();
        let Some(after) = self.rest().strip_prefix(word) else {
            return false;
        };
        let goes_on = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '[' | '/');
        if after.starts_with(goes_on) {
            return false;
        }
        self.at += word.len();
        true
    }

    fn symbol(&mut self, symbol: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(symbol);
        if found {
            self.at += symbol.len();
        }
        found
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn error(&self, expected: &'static str) -> FilterError {
        FilterError::Syntax {
            at: self.at,
            expected,
            found: self.rest().chars().take(20).collect(),
        }
    }
}

fn single(mut parts: Vec<Expr>, join: fn(Vec<Expr>) -> Expr) -> Expr {
    match parts.len() {
        1 => parts.remove(0),
        _ => join(parts),
    }
}
