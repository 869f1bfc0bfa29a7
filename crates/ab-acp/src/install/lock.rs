//! The lock files: which packages npm installs.

use std::collections::HashSet;

use serde_json::{Value, json};

/// The lock file of each agent.
pub(super) const LOCKS: &[(&str, &str)] = &[
    ("claude", include_str!("../catalog/locks/claude.json")),
    ("codex", include_str!("../catalog/locks/codex.json")),
    ("copilot", include_str!("../catalog/locks/copilot.json")),
    ("gemini", include_str!("../catalog/locks/gemini.json")),
    ("goose", include_str!("../catalog/locks/goose.json")),
    ("node", include_str!("../catalog/locks/node.json")),
    ("opencode", include_str!("../catalog/locks/opencode.json")),
    ("qwen", include_str!("../catalog/locks/qwen.json")),
];

/// The lock file of an agent, or of Node.js.
pub(super) fn lock_file(id: &str) -> Option<&'static str> {
    LOCKS.iter().find(|(known, _)| *known == id).map(|(_, lock)| *lock)
}

/// The lock file for one platform, such as `linux-x64`. Packages for other platforms are removed, and
/// those for this platform are required. In the lock file they are optional, and if npm cannot get an
/// optional package, it leaves it out and succeeds.
pub(super) fn lock_for_platform(lock: &str, platform: &str) -> Value {
    let mut lock: Value = serde_json::from_str(lock).unwrap_or_default();
    let Some(packages) = lock["packages"].as_object_mut() else { return lock };
    packages.retain(|_, package| {
        let is_optional = package["optional"] == true;
        if let Some(package) = package.as_object_mut() {
            package.remove("optional");
        }
        !is_optional || is_for_platform(package, platform)
    });
    let paths: HashSet<String> = packages.keys().cloned().collect();
    for (path, package) in packages.iter_mut() {
        let Some(package) = package.as_object_mut() else { continue };
        let Some(Value::Object(optional)) = package.remove("optionalDependencies") else {
            continue;
        };
        let required = optional.into_iter().filter(|(name, _)| is_locked(&paths, path, name));
        let dependencies = package.entry("dependencies").or_insert_with(|| json!({}));
        if let Some(dependencies) = dependencies.as_object_mut() {
            dependencies.extend(required);
        }
    }
    lock
}

/// Whether a lock file with these paths has the dependency `name` of the package at `path`. As in
/// Node.js, the closest `node_modules` that has the name counts.
fn is_locked(paths: &HashSet<String>, path: &str, name: &str) -> bool {
    let mut directory = path;
    loop {
        let separator = if directory.is_empty() { "" } else { "/" };
        if paths.contains(&format!("{directory}{separator}node_modules/{name}")) {
            return true;
        }
        if directory.is_empty() {
            return false;
        }
        directory = directory.rfind("/node_modules/").map_or("", |end| &directory[..end]);
    }
}

/// Whether a package of a lock file is for this platform. A package without these fields is for
/// every platform.
fn is_for_platform(package: &Value, platform: &str) -> bool {
    let (os, cpu) = platform.split_once('-').unwrap_or((platform, ""));
    let fits = |field: &str, word: &str| {
        package[field].as_array().is_none_or(|words| words.iter().any(|it| it == word))
    };
    fits("os", os) && fits("cpu", cpu)
}

/// Makes the manifest that belongs to a lock file: its root package.
pub(super) fn manifest(lock: &Value) -> String {
    let root = &lock["packages"][""];
    json!({
        "name": lock["name"],
        "private": true,
        "dependencies": root.get("dependencies").unwrap_or(&json!({})),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::AgentCatalog;

    #[test]
    fn packages_of_the_platform_are_required_and_others_removed() {
        for (id, lock) in LOCKS {
            for platform in ["linux-x64", "linux-arm64"] {
                let made = lock_for_platform(lock, platform);
                assert!(!made.to_string().contains("optionalDependencies"), "{id}");
                let packages = made["packages"].as_object().unwrap();
                let whole: Value = serde_json::from_str(lock).unwrap();
                for (path, package) in whole["packages"].as_object().unwrap() {
                    let is_kept = package["optional"] != true || is_for_platform(package, platform);
                    assert_eq!(packages.contains_key(path), is_kept, "{id}: {path}");
                }
                let paths: HashSet<String> = packages.keys().cloned().collect();
                for (path, package) in packages {
                    assert_eq!(package["optional"], Value::Null, "{id}: {path}");
                    let names = package["dependencies"].as_object().into_iter().flatten();
                    for (name, _) in names {
                        assert!(is_locked(&paths, path, name), "{id}: {path} needs {name}");
                    }
                }
                // Every package for the platform is a dependency of another one.
                let wanted = packages.keys().filter(|path| path.contains(platform));
                for path in wanted {
                    let name = path.rsplit_once("node_modules/").unwrap().1;
                    let needs = |package: &Value| package["dependencies"].get(name).is_some();
                    assert!(packages.values().any(needs), "{id}: {path}");
                }
            }
        }
    }

    #[test]
    fn every_lock_pins_its_packages_and_names_no_host() {
        let catalog = AgentCatalog::default();
        for entry in catalog.entries() {
            let Some(package) = &entry.package else { continue };
            let lock = lock_file(&entry.id).unwrap_or_else(|| panic!("no lock of {}", entry.id));
            let lock: Value = serde_json::from_str(lock).unwrap();
            let path = format!("node_modules/{}", package.name);
            assert_eq!(lock["packages"][&path]["version"], package.version.as_str(), "{path}");
        }
        for (id, lock) in LOCKS {
            assert!(!lock.contains("://"), "{id}");
            let lock: Value = serde_json::from_str(lock).unwrap();
            for (path, package) in lock["packages"].as_object().unwrap() {
                let integrity = package["integrity"].as_str().unwrap_or_default();
                assert!(path.is_empty() || integrity.starts_with("sha512-"), "{id}: {path}");
            }
        }
    }
}
