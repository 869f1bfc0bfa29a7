//! Finds the name and the email address with which the user commits, so that commands can commit
//! too. Nothing else of git's configuration is passed on.

use std::env;
use std::path::PathBuf;

use ab_host::GitIdentity;

/// Maximum size of a configuration file that is read, in bytes.
const LARGEST: u64 = 1024 * 1024;

/// Reads the user's global configuration of git. Files that it includes are not read.
pub(crate) fn find() -> GitIdentity {
    let mut identity = GitIdentity::default();
    for file in files() {
        let is_small = file.metadata().is_ok_and(|found| found.is_file() && found.len() <= LARGEST);
        if let Some(text) = std::fs::read_to_string(&file).ok().filter(|_| is_small) {
            add(&mut identity, &text);
        }
    }
    identity
}

/// The files that git reads, in its order. Values in later files take precedence.
fn files() -> Vec<PathBuf> {
    let path = |name| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(file) = path("GIT_CONFIG_GLOBAL") {
        return vec![file];
    }
    let home = path("HOME");
    let config = path("XDG_CONFIG_HOME").or_else(|| home.as_ref().map(|home| home.join(".config")));
    let config = config.map(|config| config.join("git/config"));
    config.into_iter().chain(home.map(|home| home.join(".gitconfig"))).collect()
}

/// Adds the values of the section `user`.
fn add(identity: &mut GitIdentity, text: &str) {
    let mut is_user = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.split(']').next().unwrap_or_default();
            is_user = section.trim().eq_ignore_ascii_case("user");
        } else if is_user && let Some((key, given)) = line.split_once('=') {
            match key.trim().to_ascii_lowercase().as_str() {
                "name" => identity.name = value(given),
                "email" => identity.email = value(given),
                _ => {}
            }
        }
    }
}

/// Returns a value without quotes and comments. `None` if it is empty.
fn value(given: &str) -> Option<String> {
    let (mut value, mut is_quoted) = (String::new(), false);
    let mut characters = given.trim().chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => is_quoted = !is_quoted,
            '\\' => value.extend(characters.next()),
            '#' | ';' if !is_quoted => break,
            other => value.push(other),
        }
    }
    let value = value.trim().to_owned();
    Some(value).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_identity_is_read() {
        let mut identity = GitIdentity::default();
        let text = "[core]\n\tname = other\n[User]\n  Name = \"A \\\"B\\\" # C\" ; comment\n\
                    email=a@example.org # work\n\tsigningkey = secret\n[user \"x\"]\nname = wrong\n";
        add(&mut identity, text);
        let expected = GitIdentity {
            name: Some("A \"B\" # C".to_owned()),
            email: Some("a@example.org".to_owned()),
        };
        assert_eq!(identity, expected);
        add(&mut identity, "[user]\nname =\n");
        assert_eq!(identity.name, None);
    }
}
