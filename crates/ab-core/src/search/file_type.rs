//! Named file types, such as `rust` or `py`, as ripgrep defines them.

use ignore::types::TypesBuilder;

/// The globs of a file type. `None` if the type is unknown.
pub fn file_type_globs(name: &str) -> Option<Vec<String>> {
    let known = TypesBuilder::new().add_defaults().definitions();
    let found = known.into_iter().find(|definition| definition.name() == name)?;
    Some(found.globs().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_types_are_known() {
        assert_eq!(file_type_globs("rust"), Some(vec!["*.rs".to_owned()]));
        assert!(file_type_globs("py").is_some_and(|globs| globs.contains(&"*.py".to_owned())));
        assert_eq!(file_type_globs("no-such-type"), None);
    }
}
