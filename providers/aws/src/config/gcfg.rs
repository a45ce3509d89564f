//! The file's syntax: the dialect of gcfg (specification: aws §1.2), which no INI parser reads
//! the same way. Knows no keys.

use std::{iter::Peekable, str::Chars};

/// One `key` or `key = value` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The section's name, lower case.
    pub section: String,
    /// The text in quotes after the section's name.
    pub subsection: Option<String>,
    /// The key as written.
    pub key: String,
    /// `None` for a bare key.
    pub value: Option<String>,
    /// Where the key stands, counted from 1.
    pub line: usize,
}

/// Why the text does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where, counted from 1.
    pub line: usize,
    /// The section, if one was open.
    pub section: Option<String>,
    /// The key, if one was read.
    pub key: Option<String>,
    /// What is wrong and how to put it right.
    pub problem: String,
}

/// Reads all entries in the order of the text.
///
/// # Errors
/// The first place that does not parse.
pub fn parse(text: &str) -> Result<Vec<Entry>, SyntaxError> {
    let text = text
        .strip_prefix('\u{feff}')
        .unwrap_or(text)
        .replace("\r\n", "\n");
    let mut parser = Parser {
        chars: text.chars().peekable(),
        line: 1,
        section: None,
        key: None,
    };
    let mut entries = Vec::new();
    while let Some(c) = parser.skip_blank() {
        match c {
            '\n' => {
                parser.next();
            }
            ';' | '#' => parser.skip_comment(),
            '[' => parser.header()?,
            _ => entries.push(parser.entry()?),
        }
    }
    Ok(entries)
}

struct Parser<'a> {
    chars: Peekable<Chars<'a>>,
    line: usize,
    section: Option<(String, Option<String>)>,
    key: Option<String>,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.chars.next();
        if c == Some('\n') {
            self.line += 1;
            self.key = None;
        }
        c
    }

    fn peek(&mut self) -> Option<char> {
        self.chars.peek().copied()
    }

    /// Skips blanks of the line and shows what comes then.
    fn skip_blank(&mut self) -> Option<char> {
        while matches!(self.peek(), Some(' ' | '\t' | '\r')) {
            self.next();
        }
        self.peek()
    }

    fn skip_comment(&mut self) {
        while self.peek().is_some_and(|c| c != '\n') {
            self.next();
        }
    }

    fn error(&self, problem: impl Into<String>) -> SyntaxError {
        SyntaxError {
            line: self.line,
            section: self.section.as_ref().map(|(name, _)| name.clone()),
            key: self.key.clone(),
            problem: problem.into(),
        }
    }

    /// A name: a letter, then letters, digits and hyphens.
    fn name(&mut self, what: &str) -> Result<String, SyntaxError> {
        let mut name = String::new();
        while let Some(c) = self.peek() {
            let fits = c.is_alphabetic() || !name.is_empty() && (c.is_numeric() || c == '-');
            if !fits {
                break;
            }
            name.push(c);
            self.next();
        }
        if name.is_empty() {
            let found = self
                .peek()
                .map_or_else(String::new, |c| format!(" but found {c:?}"));
            return Err(self.error(format!(
                "expected {what}{found}; names are letters, digits and hyphens and begin with a letter"
            )));
        }
        Ok(name)
    }

    fn header(&mut self) -> Result<(), SyntaxError> {
        self.next();
        self.skip_blank();
        let name = self.name("a section name")?.to_ascii_lowercase();
        let subsection = match self.skip_blank() {
            Some('"') => Some(self.subsection()?),
            _ => None,
        };
        if self.skip_blank() != Some(']') {
            return Err(self.error(format!("section header of {name:?} must end with ']'")));
        }
        self.next();
        self.section = Some((name, subsection));
        match self.skip_blank() {
            None | Some('\n' | ';' | '#') => Ok(()),
            Some(c) => Err(self.error(format!(
                "expected the end of the line after the section header but found {c:?}; put the \
                 key on its own line"
            ))),
        }
    }

    fn subsection(&mut self) -> Result<String, SyntaxError> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                Some('"') => return Ok(text),
                Some('\\') => match self.next() {
                    Some(c @ ('"' | '\\')) => text.push(c),
                    _ => {
                        return Err(self.error(
                            "in a section label a backslash may stand only before '\"' or '\\'",
                        ));
                    }
                },
                Some('\n') | None => {
                    return Err(self.error("section label is not closed; add '\"' before ']'"));
                }
                Some(c) => text.push(c),
            }
        }
    }

    fn entry(&mut self) -> Result<Entry, SyntaxError> {
        let line = self.line;
        let key = self.name("a key or a section header")?;
        self.key = Some(key.clone());
        let Some((section, subsection)) = self.section.clone() else {
            return Err(self.error("key stands before any section; put [Global] above it"));
        };
        let value = match self.skip_blank() {
            None | Some('\n' | ';' | '#') => None,
            Some('=') => {
                self.next();
                self.skip_blank();
                Some(self.value()?)
            }
            Some(c) => {
                return Err(self.error(format!("expected '=' after the key but found {c:?}")));
            }
        };
        Ok(Entry {
            section,
            subsection,
            key,
            value,
            line,
        })
    }

    /// The rest of the line without comment, trimmed outside quotes.
    fn value(&mut self) -> Result<String, SyntaxError> {
        let mut value = String::new();
        let mut end = 0;
        let mut quoted = false;
        while let Some(c) = self.peek() {
            if !quoted && matches!(c, '\n' | ';' | '#') {
                break;
            }
            if quoted && c == '\n' {
                break;
            }
            self.next();
            match c {
                '"' => quoted = !quoted,
                '\\' => self.escape(quoted, &mut value)?,
                // A part of another system's line end, wherever it stands.
                '\r' => {}
                _ => value.push(c),
            }
            if quoted || !matches!(c, ' ' | '\t' | '\r') {
                end = value.len();
            }
        }
        if quoted {
            return Err(self.error("quoted value is not closed; add '\"' at its end"));
        }
        value.truncate(end);
        Ok(value)
    }

    fn escape(&mut self, quoted: bool, value: &mut String) -> Result<(), SyntaxError> {
        let key = self.key.clone();
        match (quoted, self.peek()) {
            (_, Some('"')) => value.push('"'),
            (true, Some('\\')) => value.push('\\'),
            (true, Some('n')) => value.push('\n'),
            (true, Some('t')) => value.push('\t'),
            // The value goes on in the next line.
            (false, Some('\n')) => {}
            (true, _) => {
                return Err(self.error(
                    "in quotes a backslash may stand only before '\\', '\"', 'n' or 't'; write it twice",
                ));
            }
            (false, _) => {
                return Err(self.error(
                    "outside quotes a backslash may stand only before '\"' or the line end; put the \
                     value in double quotes and write each backslash twice",
                ));
            }
        }
        self.next();
        self.key = key;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(text: &str) -> Vec<(String, Option<String>)> {
        let text = format!("[Global]\n{text}");
        parse(&text)
            .unwrap()
            .into_iter()
            .map(|e| (e.key, e.value))
            .collect()
    }

    fn value(text: &str) -> Option<String> {
        values(text).remove(0).1
    }

    /// REQ-AWS-CFG-35
    #[test]
    fn values_end_at_comments_and_are_trimmed_outside_quotes() {
        for (text, want) in [
            ("Region = us-west-2 ; x", "us-west-2"),
            ("VPC=vpc-1#x", "vpc-1"),
            ("k =   a  b \t", "a  b"),
            ("k =", ""),
            (r#"k = "a ; b # c ""#, "a ; b # c "),
            (r#"k = a" b "c"#, "a b c"),
            (r#"k = "p5\\.""#, r"p5\."),
            (r#"k = "a\tb\n\"c\"""#, "a\tb\n\"c\""),
            (r#"k = a\"b"#, "a\"b"),
            ("k = a\\\n  b", "a  b"),
            ("k = a = b", "a = b"),
            ("k = a\r", "a"),
            ("k = a\rb", "ab"),
            ("k = a\u{a0}", "a\u{a0}"),
            ("é1 = a", "a"),
        ] {
            assert_eq!(value(text).as_deref(), Some(want), "{text}");
        }
        assert_eq!(value("bare"), None);
        assert_eq!(value("bare ; comment"), None);
    }

    #[test]
    fn sections_may_be_repeated_and_have_labels() {
        let text =
            "; head\n[GLOBAL] # c\r\na=1\n[ServiceOverride \"a \\\"1\\\"\"]\nb\n\n[global]\nc = 2";
        let got = parse(text).unwrap();
        let sections: Vec<_> = got
            .iter()
            .map(|e| (e.section.as_str(), e.subsection.as_deref(), e.line))
            .collect();
        assert_eq!(
            sections,
            [
                ("global", None, 3),
                ("serviceoverride", Some("a \"1\""), 5),
                ("global", None, 8)
            ]
        );
    }

    /// REQ-AWS-CFG-35
    #[test]
    fn errors_name_line_section_and_key() {
        for (text, line, key, what) in [
            ("[Global]\nP = ^p5\\.", 2, Some("P"), "double quotes"),
            ("[Global]\nP = \"a\\d\"", 2, Some("P"), "write it twice"),
            ("[Global]\nP = \"a\nb\"", 2, Some("P"), "not closed"),
            ("[Global]\n\nmy_key = 1", 3, Some("my"), "expected '='"),
            ("[Global]\n1key = 1", 2, None, "expected a key"),
            ("key = 1", 1, Some("key"), "before any section"),
            ("[Glo", 1, None, "must end with ']'"),
            ("[]", 1, None, "a section name"),
            ("[Global] a = 1", 1, None, "own line"),
            ("[S \"x", 1, None, "not closed"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(
                (error.line, error.key.as_deref()),
                (line, key),
                "{text}: {error:?}"
            );
            assert!(error.problem.contains(what), "{text}: {error:?}");
        }
        assert_eq!(
            parse("[Global]\nP = \\").unwrap_err().section.as_deref(),
            Some("global")
        );
    }

    /// In quotes, with every escape that there is.
    fn quoted(text: &str, lines: bool) -> String {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        let text = if lines {
            text.replace('\n', "\\n").replace('\t', "\\t")
        } else {
            text
        };
        format!("\"{text}\"")
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        let name = "[a-zA-Z][a-zA-Z0-9-]{0,8}";
        // A carriage return before a line end would be part of the line end.
        let text = "[^\r]{0,12}";
        (
            name.prop_map(|name| name.to_ascii_lowercase()),
            proptest::option::of("[^\r\n]{0,12}"),
            name,
            proptest::option::of(text),
        )
            .prop_map(|(section, subsection, key, value)| Entry {
                section,
                subsection,
                key,
                value,
                line: 0,
            })
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(
            text in "(\\[|\\]|[Ga]|=|\"|\\\\|;|#|\n|\r| |\t|1){0,40}|.{0,40}",
        ) {
            match parse(&text) {
                Ok(entries) => {
                    let lines: Vec<usize> = entries.iter().map(|entry| entry.line).collect();
                    prop_assert!(lines.is_sorted());
                    prop_assert!(lines.iter().all(|line| *line <= text.split('\n').count()));
                }
                Err(error) => {
                    prop_assert!((1..=text.split('\n').count()).contains(&error.line));
                }
            }
        }

        /// REQ-AWS-CFG-35
        #[test]
        fn what_is_written_is_read_back(entries in proptest::collection::vec(any_entry(), 0..5)) {
            let mut text = "; head\n".to_owned();
            let mut want = Vec::new();
            for entry in entries {
                let label = entry.subsection.as_deref().map(|label| quoted(label, false));
                text.push_str(&format!("[ {} {} ] # c\n", entry.section, label.unwrap_or_default()));
                let line = text.matches('\n').count() + 1;
                text.push_str(&entry.key);
                if let Some(value) = &entry.value {
                    text.push_str(&format!(" = {}", quoted(value, true)));
                }
                text.push_str(" ; comment\n");
                want.push(Entry { line, ..entry });
            }
            prop_assert_eq!(parse(&text), Ok(want), "{}", text);
        }

        /// Without quotes, a value is the text up to a comment without the blanks around it.
        #[test]
        fn a_plain_value_is_its_trimmed_text(text in "[^\"\\\\;#\r\n]{0,16}", comment in "[;#][^\r\n]{0,8}") {
            let read = value(&format!("k = {text}{comment}")).unwrap();
            prop_assert_eq!(read, text.trim_matches([' ', '\t']));
        }
    }
}
