//! The module map in `src/lib.rs`, enforced: who may import whom.
#![allow(clippy::unwrap_used, clippy::panic)] // Test code: a failed step should stop the test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Lower rows never import higher rows, so the graph has no cycles.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("telemetry", &[]),
    ("hooks", &["model"]),
    ("codec", &[]),
    ("proto", &[]),
    ("net", &["model"]),
    ("gossip", &["model", "codec", "net"]),
    ("store", &["model"]),
    ("rpc", &["model", "codec", "net"]),
    ("discovery", &["model", "net"]),
    ("consensus", &["model", "net", "store", "rpc"]),
    ("router", &["model", "gossip"]),
    ("ca", &["model", "store", "rpc", "consensus"]),
    (
        "federation",
        &["model", "store", "rpc", "consensus", "router"],
    ),
    ("local", &["model", "store", "consensus"]),
    ("probe", &["model", "store", "consensus", "local"]),
    (
        "reconcile",
        &["model", "gossip", "store", "consensus", "router"],
    ),
    ("proxycfg", &["model", "store"]),
    ("xds", &["model", "proto", "net", "store", "proxycfg"]),
    (
        "api",
        &[
            "model",
            "codec",
            "net",
            "gossip",
            "router",
            "store",
            "rpc",
            "discovery",
            "consensus",
            "ca",
            "local",
        ],
    ),
    ("http", &["model", "proto", "net", "api"]),
    ("operator", &["model", "proto", "api"]),
    ("bootstrap", &["model"]),
    (
        "config",
        &[
            "model",
            "net",
            "store",
            "rpc",
            "discovery",
            "consensus",
            "ca",
            "local",
            "xds",
            "api",
            "http",
        ],
    ),
    (
        "app",
        &[
            "model",
            "codec",
            "proto",
            "net",
            "gossip",
            "router",
            "store",
            "rpc",
            "discovery",
            "consensus",
            "ca",
            "federation",
            "local",
            "probe",
            "reconcile",
            "proxycfg",
            "xds",
            "api",
            "http",
            "operator",
            "config",
        ],
    ),
    (
        "cli",
        &[
            "model",
            "codec",
            "net",
            "gossip",
            "rpc",
            "bootstrap",
            "config",
            "app",
        ],
    ),
];

/// Leaves that every module may import.
const LEAVES: &[&str] = &["telemetry", "hooks"];

#[test]
fn modules_import_only_what_the_map_allows() {
    let allowed: BTreeMap<_, _> = MAY_IMPORT.iter().copied().collect();
    let mut wrong = Vec::new();
    for file in sources(Path::new("src")) {
        let Some(module) = top_level_module(&file) else {
            continue;
        };
        if module == "testing" {
            continue; // May import everything; nothing may import it.
        }
        let may = allowed
            .get(module.as_str())
            .unwrap_or_else(|| panic!("{module} is not in MAY_IMPORT"));
        for used in used_modules(&production_code(&file)) {
            // A name that is not in the map is a re-export at the crate root: it would hide an import.
            if used != module && !may.contains(&used.as_str()) && !LEAVES.contains(&used.as_str()) {
                wrong.push(format!(
                    "{}: {module} may not import {used}",
                    file.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_map_has_no_cycles() {
    for (row, (module, may)) in MAY_IMPORT.iter().enumerate() {
        for used in *may {
            let below = MAY_IMPORT[..row].iter().any(|(lower, _)| lower == used);
            assert!(
                below,
                "{module} imports {used}, which is not in a row above it"
            );
        }
    }
}

/// `crate::{a, b}` and `super::super::` would hide an import from the check above.
#[test]
fn imports_are_written_plainly() {
    for file in sources(Path::new("src")) {
        let code = production_code(&file);
        for hidden in ["crate::{", "super::super::"] {
            assert!(
                !code.contains(hidden),
                "{}: write `{hidden}` as `crate::module::...`",
                file.display()
            );
        }
    }
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            out.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs")
            && path.file_stem().is_some_and(|s| s != "tests")
        {
            out.push(path);
        }
    }
    out
}

fn top_level_module(file: &Path) -> Option<String> {
    let first = file.strip_prefix("src").ok()?.iter().next()?.to_str()?;
    let name = first.trim_end_matches(".rs");
    (!matches!(name, "lib" | "main")).then(|| name.to_owned())
}

fn production_code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap()
        .to_owned()
}

fn used_modules(code: &str) -> Vec<String> {
    let code = code.lines().filter(|l| !l.trim_start().starts_with("//"));
    code.flat_map(|l| {
        l.split("crate::")
            .skip(1)
            .map(|rest| {
                rest.chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect()
            })
            .collect::<Vec<String>>()
    })
    .collect()
}
