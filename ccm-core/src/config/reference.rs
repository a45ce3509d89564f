//! The help text and the reference page, made from the flag table.

use std::fmt::Write as _;

use super::{
    flag::{Flag, Kind, Section},
    flags,
};
use crate::cloud::Registry;

/// The column at which help texts are wrapped.
const WIDTH: usize = 100;

/// The text of `--help`: all flags by section, deprecated ones left out; then those that only one of
/// these clouds has.
pub fn render_help(program: &str, clouds: &Registry) -> String {
    let mut text = format!(
        "The cloud controller manager joins a Kubernetes cluster to the cloud it runs on: Nodes,\n\
         load balancers, routes and pod address ranges.\n\nUsage:\n  {program} [flags]\n"
    );
    for (section, provider) in sections(clouds) {
        // Writing to a String cannot fail.
        let _ = match provider {
            None => write!(text, "\n{} flags:\n\n", section.title()),
            Some(name) => write!(
                text,
                "\n{} flags, only with --cloud-provider={name}:\n\n",
                section.title()
            ),
        };
        let visible = of_section(section, clouds).filter(|flag| flag.deprecated.is_none());
        for flag in visible {
            let short = flag
                .short
                .map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
            let word = flag.kind.word();
            let space = if word.is_empty() { "" } else { " " };
            let _ = writeln!(text, "  {short}--{}{space}{word}", flag.name);
            for line in wrap(&help_with_default(flag), WIDTH - 10) {
                let _ = writeln!(text, "          {line}");
            }
        }
    }
    text
}

/// The reference of all flags as Markdown: one table a section; then those that only one of these
/// clouds has.
pub fn render_reference(clouds: &Registry) -> String {
    let mut text = String::from(
        "# Flags\n\n<!-- Made by `cargo xtask docs` from the flag table; do not edit. -->\n\n\
         Go's syntax: `--flag=value` or `--flag value`, booleans only `--flag=value`, `_` counts \
         as `-`; of a flag given twice the last one wins, lists append, feature gates merge. Flags marked *own* are \
         not in the Go managers.\n",
    );
    for (section, provider) in sections(clouds) {
        let _ = write!(text, "\n## {}\n\n", section.title());
        if let Some(name) = provider {
            let _ = write!(text, "Only with `--cloud-provider={name}`.\n\n");
        }
        text.push_str("| Flag | Type | Default | Meaning |\n|---|---|---|---|\n");
        for flag in of_section(section, clouds) {
            let _ = writeln!(text, "{}", reference_row(flag));
        }
    }
    text
}

fn reference_row(flag: &Flag) -> String {
    let short = flag
        .short
        .map_or_else(String::new, |letter| format!("`-{letter}`, "));
    let word = match flag.kind {
        Kind::Bool => "bool",
        other => other.word(),
    };
    let default = match flag.default {
        "" => String::new(),
        value => format!("`{value}`"),
    };
    let mut help = meaning(flag).replace('|', "\\|").replace('*', "\\*");
    if let Some(reason) = flag.deprecated {
        let _ = write!(help, " Deprecated: {reason}.");
    }
    if flag.own {
        help.push_str(" *own*");
    }
    format!("| {short}`--{}` | {word} | {default} | {help} |", flag.name)
}

/// All sections, and for those of one provider its name.
fn sections(clouds: &Registry) -> Vec<(Section, Option<&'static str>)> {
    let mut all: Vec<_> = Section::ALL.map(|section| (section, None)).into();
    for (provider, own) in clouds.own() {
        for flag in own.flags {
            let section = (flag.section, Some(provider));
            if !all.contains(&section) {
                all.push(section);
            }
        }
    }
    all
}

fn of_section(section: Section, clouds: &Registry) -> impl Iterator<Item = &'static Flag> {
    let own = clouds.own().flat_map(|(_, own)| own.flags);
    let all: Vec<_> = flags().iter().chain(own).collect();
    all.into_iter().filter(move |flag| flag.section == section)
}

/// The help, and what is said of a flag that changes nothing.
fn meaning(flag: &Flag) -> String {
    match flag.inert {
        Some(reason) => format!("{} Accepted without effect: {reason}.", flag.help),
        None => flag.help.to_owned(),
    }
}

fn help_with_default(flag: &Flag) -> String {
    let help = meaning(flag);
    match (flag.kind, flag.default) {
        (_, "" | "false" | "0" | "0s") => help,
        (Kind::Text | Kind::List, value) => format!("{help} (default {value:?})"),
        (_, value) => format!("{help} (default {value})"),
    }
}

/// Breaks a text at spaces.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_shows_every_flag_but_the_deprecated_ones() {
        let help = render_help("cloud-controller-manager", &Registry::default());
        for flag in flags() {
            let shown = help.contains(&format!("--{}", flag.name));
            assert_eq!(shown, flag.deprecated.is_none(), "--{}", flag.name);
        }
        assert!(help.lines().all(|line| line.len() <= WIDTH));
        assert!(help.contains("Service-lb-controller flags:"));
        assert!(help.contains("--node-monitor-period duration\n"));
        assert!(help.contains("-v, --v level"));
    }

    #[test]
    fn the_reference_has_one_row_a_flag() {
        let page = render_reference(&Registry::default());
        for flag in flags() {
            let rows = page
                .lines()
                .filter(|line| {
                    line.starts_with('|') && line.contains(&format!("`--{}` |", flag.name))
                })
                .count();
            assert_eq!(rows, 1, "--{}", flag.name);
        }
        assert!(page.contains("Deprecated: "));
        assert!(page.contains("Accepted without effect: "));
        for section in Section::ALL {
            let title = format!("\n## {}\n", section.title());
            assert!(page.contains(&title), "{title}");
            assert!(flags().iter().any(|flag| flag.section == section));
        }
    }
}
