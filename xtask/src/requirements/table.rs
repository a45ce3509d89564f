//! Requirement numbers in text, and the tables that define them.

/// One row of a table: a requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// Its number.
    pub(super) id: String,
    /// The file of the table, from the root of the checkout.
    pub(super) file: String,
    /// The line in it, from 1.
    pub(super) line: usize,
}

/// The rows whose first cell is a requirement number.
pub(super) fn rows(file: &str, text: &str) -> Vec<Row> {
    text.lines()
        .enumerate()
        .filter_map(|(index, line)| {
            let cell = line.trim().strip_prefix('|')?.split('|').next()?.trim();
            (ids(cell).first() == Some(&cell)).then(|| Row {
                id: cell.to_owned(),
                file: file.to_owned(),
                line: index + 1,
            })
        })
        .collect()
}

/// Every requirement number in a text: `REQ`, one or more words in capitals, a number.
pub(super) fn ids(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (start, _) in text.match_indices("REQ-") {
        let before = text.get(..start).and_then(|text| text.chars().next_back());
        let is_word = before.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_');
        if let (false, Some(length)) = (is_word, text.get(start..).and_then(id_length)) {
            found.extend(text.get(start..start + length));
        }
    }
    found
}

/// The length of the number that the text begins with.
fn id_length(text: &str) -> Option<usize> {
    let mut length = "REQ".len();
    let mut words = 0;
    loop {
        let rest = text.get(length..)?.strip_prefix('-')?;
        let part = rest.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
        let digits = part.chars().take_while(char::is_ascii_digit).count();
        if digits > 0 {
            return (words > 0).then_some(length + 1 + digits);
        }
        if part.is_empty() || !part.chars().all(|c| c.is_ascii_uppercase()) {
            return None;
        }
        words += 1;
        length += 1 + part.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_wherever_they_stand_in_a_text() {
        for (text, want) in [
            (
                "/// REQ-NODE-03, REQ-NODE-04",
                vec!["REQ-NODE-03", "REQ-NODE-04"],
            ),
            ("(REQ-AWS-NLB-1)", vec!["REQ-AWS-NLB-1"]),
            ("REQ-SVC-01…20", vec!["REQ-SVC-01"]),
            ("REQ-NODE- and REQ-1 and REQ-node-1 and REQ-", vec![]),
            ("XREQ-NODE-1", vec![]),
        ] {
            assert_eq!(ids(text), want, "{text}");
        }
    }

    #[test]
    fn only_first_cells_define_a_requirement() {
        let text =
            "# T\n\n| ID | What |\n|---|---|\n| REQ-A-1 | as REQ-A-2 |\n| see REQ-A-3 | x |\n";
        let found = rows("t.md", text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].id.as_str(), found[0].line), ("REQ-A-1", 5));
    }
}
