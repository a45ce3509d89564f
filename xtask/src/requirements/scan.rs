//! Where tests name requirements. Works on lines: the code is formatted, so a function ends with
//! a brace (Rust) or a line (Python) at its own indentation.

use super::table::ids;

/// A requirement named in test code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mention {
    /// The number.
    pub(super) id: String,
    /// The file, from the root of the checkout.
    pub(super) file: String,
    /// The line, from 1.
    pub(super) line: usize,
    /// The test that names it; none if it stands elsewhere in test code.
    pub(super) test: Option<String>,
}

/// All mentions in a file of this name (from the root of the checkout). Product code may talk
/// about any requirement: outside test folders only tests count.
pub(super) fn mentions(file: &str, text: &str) -> Vec<Mention> {
    let found = if has_ending(file, "py") {
        python(text)
    } else {
        rust(text)
    };
    let is_test_file = file.starts_with("e2e/") || file.split('/').any(|part| part == "tests");
    found
        .into_iter()
        .filter(|(_, _, test)| is_test_file || test.is_some())
        .map(|(line, id, test)| Mention {
            id,
            file: file.to_owned(),
            line,
            test,
        })
        .collect()
}

fn has_ending(file: &str, ending: &str) -> bool {
    file.rsplit_once('.')
        .is_some_and(|(_, found)| found == ending)
}

/// (line, number, test)
type Found = (usize, String, Option<String>);

/// What stands above the next function.
#[derive(Default)]
struct Above {
    ids: Vec<(usize, String)>,
    is_test: bool,
    is_ignored: bool,
    /// An example in the documentation that must not compile: a test as well.
    has_compile_fail: bool,
    /// Inside an attribute of several lines.
    in_attribute: bool,
}

/// The function whose body we are in.
struct Body {
    name: Option<String>,
    indent: usize,
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn rust(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    let mut above = Above::default();
    let mut body: Option<Body> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.trim();
        let here = ids(line).into_iter().map(|id| (number, id.to_owned()));
        if let Some(open) = &body {
            found.extend(here.map(|(line, id)| (line, id, open.name.clone())));
            if code.starts_with('}') && indent(line) <= open.indent {
                body = None;
            }
            continue;
        }
        if above.in_attribute {
            above.in_attribute = !code.ends_with(']');
            above.ids.extend(here);
        } else if code.starts_with("//") {
            above.has_compile_fail |= code.contains("```compile_fail");
            above.ids.extend(here);
        } else if let Some(attribute) = code.strip_prefix("#[") {
            above.is_test |= is_test_attribute(attribute);
            above.is_ignored |= attribute.starts_with("ignore");
            above.in_attribute = !code.ends_with(']');
            above.ids.extend(here);
        } else {
            above.ids.extend(here);
            let name = if above.has_compile_fail {
                Some(format!(
                    "example that must not compile, of {}",
                    code.trim_end_matches(" {")
                ))
            } else {
                function_name(code).filter(|_| above.is_test && !above.is_ignored)
            };
            let taken = std::mem::take(&mut above);
            found.extend(
                taken
                    .ids
                    .into_iter()
                    .map(|(line, id)| (line, id, name.clone())),
            );
            if taken.is_test && !code.is_empty() && !code.ends_with('}') {
                body = Some(Body {
                    name,
                    indent: indent(line),
                });
            }
        }
    }
    found.extend(above.ids.into_iter().map(|(line, id)| (line, id, None)));
    found
}

/// `test]`, `tokio::test]`, `tokio::test(start_paused = true)]`
fn is_test_attribute(attribute: &str) -> bool {
    let path = attribute.split(['(', ']']).next().unwrap_or_default();
    path.rsplit("::").next() == Some("test")
}

fn function_name(code: &str) -> Option<String> {
    let (before, after) = code.split_once("fn ")?;
    let is_declaration = before.split_whitespace().all(|word| {
        matches!(
            word,
            "pub" | "async" | "const" | "pub(crate)" | "pub(super)"
        )
    });
    let name: String = after
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (is_declaration && !name.is_empty()).then_some(name)
}

/// A test is a function `test_…`; its comments directly above, and its text.
fn python(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut body: Option<Body> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.trim();
        let here = ids(line).into_iter().map(|id| (number, id.to_owned()));
        let ends =
            |open: &Body| !code.is_empty() && indent(line) <= open.indent && !code.starts_with(')');
        if body.as_ref().is_some_and(ends) {
            body = None;
        }
        if let Some(open) = &body {
            found.extend(here.map(|(line, id)| (line, id, open.name.clone())));
        } else if code.starts_with('#') || code.starts_with('@') {
            above.extend(here);
        } else {
            above.extend(here);
            let name = code
                .trim_start_matches("async ")
                .strip_prefix("def ")
                .and_then(|rest| rest.split('(').next())
                .filter(|name| name.starts_with("test_"))
                .map(str::to_owned);
            found.extend(
                std::mem::take(&mut above)
                    .into_iter()
                    .map(|(line, id)| (line, id, name.clone())),
            );
            if name.is_some() {
                body = Some(Body {
                    name,
                    indent: indent(line),
                });
            }
        }
    }
    found.extend(above.into_iter().map(|(line, id)| (line, id, None)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(file: &str, text: &str) -> Vec<(usize, String, Option<String>)> {
        mentions(file, text)
            .into_iter()
            .map(|mention| (mention.line, mention.id, mention.test))
            .collect()
    }

    fn by(line: usize, id: &str, test: &str) -> (usize, String, Option<String>) {
        (line, id.into(), Some(test.into()))
    }

    #[test]
    fn an_example_that_must_not_compile_is_a_test() {
        let text = "/// REQ-A-1\n/// ```compile_fail\n/// x\n/// ```\npub enum E {\n}\n";
        let found = shown("ccm-core/src/x.rs", text);
        assert_eq!(
            found,
            [by(
                1,
                "REQ-A-1",
                "example that must not compile, of pub enum E"
            )]
        );
    }

    const UNIT: &str = r#"//! About REQ-A-1.
/// REQ-A-2 in product code.
pub fn product() {
    // REQ-A-3
}

#[cfg(test)]
mod tests {
    /// REQ-A-4, REQ-A-5
    #[tokio::test(
        start_paused = true
    )]
    async fn sentences_are_names() {
        let x = || {
            // REQ-A-6
        };
    }

    // REQ-A-7 is left by itself.

    /// REQ-A-8
    #[test]
    #[ignore = "needs an account"]
    fn nobody_runs_this() {
        // REQ-A-9
    }

    #[test]
    /// REQ-A-10
    fn one_line() {}

    // REQ-A-11
    fn helper() {}
}
"#;

    #[test]
    fn in_product_files_only_tests_count() {
        assert_eq!(
            shown("ccm-core/src/a.rs", UNIT),
            [
                by(9, "REQ-A-4", "sentences_are_names"),
                by(9, "REQ-A-5", "sentences_are_names"),
                by(15, "REQ-A-6", "sentences_are_names"),
                by(29, "REQ-A-10", "one_line"),
            ]
        );
    }

    #[test]
    fn in_test_files_other_mentions_are_seen_but_show_nothing() {
        let all = shown("e2e/tests/tests/a.rs", UNIT);
        let loose: Vec<&str> = all
            .iter()
            .filter(|(_, _, test)| test.is_none())
            .map(|(_, id, _)| id.as_str())
            .collect();
        assert_eq!(
            loose,
            [
                "REQ-A-1", "REQ-A-2", "REQ-A-3", "REQ-A-7", "REQ-A-8", "REQ-A-9", "REQ-A-11"
            ]
        );
    }

    #[test]
    fn laws_inside_a_macro_are_tests() {
        let text = "proptest! {\n    /// REQ-A-1\n    #[test]\n    fn law(x in 0..9) {\n        f(x);\n    }\n\n    /// REQ-A-2\n    #[test]\n    fn other(x in 0..9) {\n    }\n}\n";
        assert_eq!(
            shown("a/src/plan.rs", text),
            [by(2, "REQ-A-1", "law"), by(8, "REQ-A-2", "other")]
        );
    }

    #[test]
    fn python_tests_are_read_by_indentation() {
        let text = "# REQ-A-1\ndef test_one(\n    a,\n):\n    \"\"\"REQ-A-2\"\"\"\n\n    # REQ-A-3\n\nx = 1  # REQ-A-4\n\ndef helper():\n    pass  # REQ-A-5\n";
        assert_eq!(
            shown("e2e/tests/python/a.py", text),
            [
                by(1, "REQ-A-1", "test_one"),
                by(5, "REQ-A-2", "test_one"),
                by(7, "REQ-A-3", "test_one"),
                (9, "REQ-A-4".into(), None),
                (12, "REQ-A-5".into(), None),
            ]
        );
    }
}
