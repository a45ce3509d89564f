//! The reference pages that the program prints about itself: `docs PAGE [CLOUD]`. Not in the help:
//! the build uses it.

use ccm_core::{
    config::render_reference,
    runtime::{
        EventRow, RbacOptions, SampleMetrics, events_reference, metrics_reference, rbac_manifest,
        rbac_reference,
    },
};

use crate::providers;

/// The page that the arguments ask for; `None` when they ask for something else.
///
/// # Errors
/// There is no such page in this binary; the text names those that there are.
pub(crate) fn page(args: &[String]) -> Option<Result<String, String>> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ["docs", page @ ..] = args.as_slice() else {
        return None;
    };
    Some(match page {
        ["flags"] => Ok(render_reference()),
        ["metrics"] => metrics(),
        ["events"] => Ok(events()),
        ["rbac"] => Ok(rbac_reference()),
        ["rbac-manifest"] => Ok(rbac_manifest(&RbacOptions::default())),
        ["iam", cloud, policy] => of_policy(cloud, policy),
        [page, cloud] => of_cloud(page, cloud),
        _ => Err(unknown()),
    })
}

fn metrics() -> Result<String, String> {
    let samples: Vec<SampleMetrics> = providers::pages().iter().map(|of| of.metrics).collect();
    metrics_reference(&samples).map_err(|error| error.to_string())
}

fn events() -> String {
    let notes: Vec<EventRow> = providers::pages()
        .iter()
        .flat_map(|of| of.notes)
        .copied()
        .collect();
    events_reference(&notes)
}

fn of_cloud(page: &str, cloud: &str) -> Result<String, String> {
    let clouds = providers::pages();
    let of = clouds.iter().find(|of| of.cloud == cloud);
    match (page, of) {
        ("annotations", Some(of)) => Ok((of.annotations)()),
        ("config", Some(of)) => Ok((of.config)()),
        ("iam", Some(of)) => Ok((of.permissions)()),
        _ => Err(unknown()),
    }
}

fn of_policy(cloud: &str, policy: &str) -> Result<String, String> {
    let clouds = providers::pages();
    let of = clouds.iter().find(|of| of.cloud == cloud);
    of.and_then(|of| (of.policy)(policy)).ok_or_else(unknown)
}

fn unknown() -> String {
    let clouds: Vec<&str> = providers::pages().iter().map(|of| of.cloud).collect();
    format!(
        "pages are: docs flags, docs metrics, docs events, docs rbac, docs rbac-manifest, docs \
         annotations CLOUD, docs config CLOUD, docs iam CLOUD, docs iam CLOUD POLICY; clouds of \
         this binary: {}",
        if clouds.is_empty() {
            "none".to_owned()
        } else {
            clouds.join(", ")
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(args: &[&str]) -> Option<Result<String, String>> {
        page(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn every_page_has_a_title_and_says_who_made_it() {
        let mut pages: Vec<Vec<&str>> = ["flags", "metrics", "events", "rbac"]
            .map(|page| vec![page])
            .into();
        for of in providers::pages() {
            pages.extend(["annotations", "config", "iam"].map(|page| vec![page, of.cloud]));
        }
        for page in pages {
            let text = ask(&[&["docs"], page.as_slice()].concat())
                .unwrap()
                .unwrap();
            assert!(text.starts_with("# ") && text.ends_with("|\n"), "{page:?}");
            assert!(text.contains("<!-- Made by `cargo xtask docs`"), "{page:?}");
        }
    }

    #[test]
    fn the_manifest_is_yaml_that_says_who_made_it() {
        let text = ask(&["docs", "rbac-manifest"]).unwrap().unwrap();
        assert!(text.starts_with("# Made by `cargo xtask docs`"), "{text}");
        assert!(text.contains("\nkind: ClusterRole\n"), "{text}");
    }

    #[test]
    fn a_policy_is_json_by_its_name() {
        for of in providers::pages() {
            let text = ask(&["docs", "iam", of.cloud, "all"]).unwrap().unwrap();
            assert!(text.starts_with("{\n") && text.ends_with("}\n"), "{text}");
            assert!(ask(&["docs", "iam", of.cloud, "x"]).unwrap().is_err());
        }
    }

    #[test]
    fn other_pages_are_refused_and_other_arguments_left_to_the_flags() {
        for args in [
            &["docs"][..],
            &["docs", "x"],
            &["docs", "config", "moon"],
            &["docs", "iam", "moon", "all"],
        ] {
            let error = ask(args).unwrap().unwrap_err();
            assert!(error.contains("docs annotations CLOUD"), "{error}");
        }
        assert!(ask(&[]).is_none() && ask(&["--help"]).is_none());
    }
}
