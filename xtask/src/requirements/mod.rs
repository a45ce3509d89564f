//! `cargo xtask requirements`: which numbered requirement is shown by which test.
//!
//! The requirements are the rows of the tables in `docs/reference/requirements/`. A test shows
//! one by naming its number in the comment directly above the test, or inside it. An ignored
//! test shows nothing: nobody runs it.

mod scan;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use crate::context::Context;
use scan::Mention;
use table::Row;

/// Where the tables are.
const FOLDER: &str = "docs/reference/requirements";

/// The generated page beside them.
pub(crate) const OVERVIEW: &str = "docs/reference/requirements/overview.md";

/// Not searched for tests: xtask's own tests talk about numbers that do not exist.
const NOT_SEARCHED: &[&str] = &["xtask", "target", "node_modules", "__pycache__"];

/// How strict.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fail as well if a requirement has no test.
    #[arg(long)]
    strict: bool,
}

/// A test that names a requirement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    file: String,
    test: String,
}

/// Requirements against tests.
#[derive(Debug, Default)]
struct Report {
    /// Every requirement in the order of the tables, with the tests that show it.
    rows: Vec<(Row, BTreeSet<Place>)>,
    /// Numbers that are unknown or given twice.
    problems: Vec<String>,
}

/// Prints every requirement with its tests.
///
/// # Errors
/// A number is unknown or given twice; with `--strict`, one is open.
pub(crate) fn run(ctx: &Context, args: &Args) -> Result<()> {
    let report = report(ctx)?;
    for (row, places) in &report.rows {
        if places.is_empty() {
            println!("{:<20} open", row.id);
        }
        for place in places {
            println!("{:<20} {}: {}", row.id, place.file, place.test);
        }
    }
    conclude(&report)?;
    let open = report.open();
    if args.strict && open > 0 {
        bail!("{open} requirements have no test");
    }
    Ok(())
}

/// The same in one line, for the test ring.
///
/// # Errors
/// A number is unknown or given twice.
pub(crate) fn check(ctx: &Context) -> Result<()> {
    conclude(&report(ctx)?)
}

fn conclude(report: &Report) -> Result<()> {
    for problem in &report.problems {
        eprintln!("error: {problem}");
    }
    println!("{}", report.last_line());
    if !report.problems.is_empty() {
        bail!("{} wrong requirement numbers", report.problems.len());
    }
    Ok(())
}

/// The overview as a page.
///
/// # Errors
/// A table or a test file cannot be read, or a number is wrong.
pub(crate) fn overview_page(ctx: &Context) -> Result<String> {
    let report = report(ctx)?;
    if !report.problems.is_empty() {
        bail!("{}", report.problems.join("\n"));
    }
    Ok(report.page())
}

fn report(ctx: &Context) -> Result<Report> {
    let mut rows = Vec::new();
    for file in files_below(&ctx.root.join(FOLDER), &["md"])? {
        let text = read(&file)?;
        let name = relative(&ctx.root, &file);
        if name != OVERVIEW {
            rows.extend(table::rows(&name, &text));
        }
    }
    let mut mentions = Vec::new();
    for file in files_below(&ctx.root, &["rs", "py"])? {
        let text = read(&file)?;
        mentions.extend(scan::mentions(&relative(&ctx.root, &file), &text));
    }
    Ok(Report::new(rows, &mentions))
}

impl Report {
    fn new(rows: Vec<Row>, mentions: &[Mention]) -> Self {
        let mut problems = Vec::new();
        let mut shown: BTreeMap<String, BTreeSet<Place>> = BTreeMap::new();
        let mut kept: Vec<Row> = Vec::new();
        for row in rows {
            if shown.insert(row.id.clone(), BTreeSet::new()).is_some() {
                problems.push(format!(
                    "{}:{}: {} is there twice",
                    row.file, row.line, row.id
                ));
            } else {
                kept.push(row);
            }
        }
        for mention in mentions {
            match (shown.get_mut(&mention.id), &mention.test) {
                (Some(places), Some(test)) => {
                    places.insert(Place {
                        file: mention.file.clone(),
                        test: test.clone(),
                    });
                }
                (Some(_), None) => {}
                (None, _) => problems.push(format!(
                    "{}:{}: {} is in no table of {FOLDER}",
                    mention.file, mention.line, mention.id
                )),
            }
        }
        let rows = kept
            .into_iter()
            .map(|row| {
                let places = shown.remove(&row.id).unwrap_or_default();
                (row, places)
            })
            .collect();
        Self { rows, problems }
    }

    fn open(&self) -> usize {
        self.rows
            .iter()
            .filter(|(_, places)| places.is_empty())
            .count()
    }

    fn last_line(&self) -> String {
        let (all, open) = (self.rows.len(), self.open());
        format!(
            "requirements: {all} in all, {} shown by tests, {open} open",
            all - open
        )
    }

    fn page(&self) -> String {
        let mut page = String::from(
            "<!-- Generated by `cargo xtask docs`. Do not edit. -->\n\n# Requirements and their tests\n\n",
        );
        page.push_str(
            "Which test shows which requirement. `cargo xtask requirements` prints the same.\n\n",
        );
        page.push_str(&format!("{}\n", self.last_line()));
        let mut table = "";
        for (row, places) in &self.rows {
            if row.file != table {
                table = &row.file;
                let name = table.rsplit('/').next().unwrap_or(table);
                page.push_str(&format!(
                    "\n## [{name}]({name})\n\n| Requirement | Shown by |\n|---|---|\n"
                ));
            }
            let tests: Vec<String> = places
                .iter()
                .map(|place| format!("`{}` {}", place.file, place.test))
                .collect();
            let tests = if tests.is_empty() {
                "open".to_owned()
            } else {
                tests.join("<br>")
            };
            page.push_str(&format!("| {} | {tests} |\n", row.id));
        }
        page
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

fn relative(root: &Path, file: &Path) -> String {
    file.strip_prefix(root)
        .unwrap_or(file)
        .to_string_lossy()
        .into_owned()
}

/// The files with one of these endings, in the order of their names.
fn files_below(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(folder) = todo.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                if !name.starts_with('.') && !NOT_SEARCHED.contains(&name.as_str()) {
                    todo.push(path);
                }
            } else if path.extension().is_some_and(|ending| {
                endings
                    .iter()
                    .any(|wanted| ending == std::ffi::OsStr::new(wanted))
            }) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str) -> Row {
        Row {
            id: id.into(),
            file: "docs/reference/requirements/a.md".into(),
            line: 1,
        }
    }

    fn mention(id: &str, test: Option<&str>) -> Mention {
        Mention {
            id: id.into(),
            file: "a/tests/b.rs".into(),
            line: 7,
            test: test.map(str::to_owned),
        }
    }

    #[test]
    fn a_requirement_is_shown_only_by_a_test_that_names_it() {
        let report = Report::new(
            vec![row("REQ-A-1"), row("REQ-A-2"), row("REQ-A-3")],
            &[
                mention("REQ-A-1", Some("it_works")),
                mention("REQ-A-2", None),
            ],
        );
        assert_eq!(
            report.last_line(),
            "requirements: 3 in all, 1 shown by tests, 2 open"
        );
        assert!(report.problems.is_empty());
        assert!(
            report
                .page()
                .contains("| REQ-A-1 | `a/tests/b.rs` it_works |")
        );
        assert!(report.page().contains("| REQ-A-2 | open |"));
    }

    #[test]
    fn unknown_and_doubled_numbers_fail_with_their_place() {
        let report = Report::new(
            vec![row("REQ-A-1"), row("REQ-A-1")],
            &[mention("REQ-A-9", Some("it_works"))],
        );
        assert_eq!(report.problems.len(), 2);
        assert!(report.problems[0].contains("a.md:1: REQ-A-1 is there twice"));
        assert!(report.problems[1].contains("a/tests/b.rs:7: REQ-A-9"));
        assert!(conclude(&report).is_err());
        assert_eq!(
            report.last_line(),
            "requirements: 1 in all, 0 shown by tests, 1 open"
        );
    }
}
