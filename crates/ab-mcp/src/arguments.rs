//! Reads the arguments of a call one by one. Errors name the argument.

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::failure::Failure;
use crate::quantity::grouped;

/// The arguments of a tool call. Unknown arguments are refused when this value is created.
#[derive(Debug)]
pub(crate) struct Arguments {
    tool: &'static str,
    values: JsonObject,
}

impl Arguments {
    /// Checks the names of the arguments. `known` are the properties of the tool's schema. A
    /// mistyped name must not be ignored, because a call with a misspelt `dryRun` would write.
    pub(crate) fn new(
        tool: &'static str,
        known: &[&str],
        values: JsonObject,
    ) -> Result<Arguments, Failure> {
        if let Some(name) = values.keys().find(|name| !known.contains(&name.as_str())) {
            let takes = match known {
                [] => "no arguments".to_owned(),
                known => known.join(", "),
            };
            let name =
                ab_core::error::escape_unprintable(&name.chars().take(100).collect::<String>());
            return Err(Failure::misuse(format!(
                "{tool} has no argument '{name}'; it takes {takes}"
            )));
        }
        Ok(Arguments { tool, values })
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<String, Failure> {
        match self.optional_text(name)? {
            Some(text) => Ok(text),
            None => Err(self.missing(name, "a string")),
        }
    }

    pub(crate) fn optional_text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a string", &other)),
        }
    }

    /// The strings of an argument, which may be a string or an array of strings.
    pub(crate) fn texts_mut(&mut self, name: &str) -> Vec<&mut String> {
        fn text(value: &mut Value) -> Option<&mut String> {
            match value {
                Value::String(text) => Some(text),
                _ => None,
            }
        }
        match self.values.get_mut(name) {
            Some(Value::Array(items)) => items.iter_mut().filter_map(text).collect(),
            Some(value) => text(value).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// An array of at most `bound` strings. Empty if the argument is missing.
    pub(crate) fn texts(&mut self, name: &str, bound: usize) -> Result<Vec<String>, Failure> {
        let Some(items) = self.items(name, "an array of strings", bound)? else {
            return Ok(Vec::new());
        };
        let text = |(index, item): (usize, Value)| match item {
            Value::String(text) => Ok(text),
            other => Err(self.wrong(&format!("{name}[{index}]"), "a string", &other)),
        };
        items.into_iter().enumerate().map(text).collect()
    }

    pub(crate) fn items(
        &mut self,
        name: &str,
        expected: &str,
        bound: usize,
    ) -> Result<Option<Vec<Value>>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(items)) if items.len() <= bound => Ok(Some(items)),
            Some(Value::Array(items)) => Err(Failure::misuse(format!(
                "'{name}' has {} items; at most {} at a time",
                grouped(items.len() as u64),
                grouped(bound as u64)
            ))),
            Some(other) => Err(self.wrong(name, expected, &other)),
        }
    }

    pub(crate) fn flag(&mut self, name: &str, default: bool) -> Result<bool, Failure> {
        match self.take(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(self.wrong(name, "true or false", &other)),
        }
    }

    /// An integer that is at least 1.
    pub(crate) fn count(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        match self.whole(name)? {
            Some(0) => {
                Err(Failure::misuse(format!("'{name}' must be a whole number of at least 1")))
            }
            count => Ok(count),
        }
    }

    /// An integer that is at least 0.
    pub(crate) fn whole(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let exact = value.as_u64().or_else(|| match value.as_f64() {
            Some(number) if number >= 0.0 && number.fract() == 0.0 && number < 9e15 => {
                Some(number as u64)
            }
            _ => None,
        });
        match exact {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, "a whole number that is not negative", &value)),
        }
    }

    pub(crate) fn seconds(&mut self, name: &str) -> Result<Option<f64>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_f64() {
            Some(seconds) if seconds >= 0.0 => Ok(Some(seconds)),
            _ => Err(self.wrong(name, "a number of seconds that is not negative", &value)),
        }
    }

    /// A positive duration of at most `bound`.
    pub(crate) fn time(
        &mut self,
        name: &str,
        bound: Duration,
    ) -> Result<Option<Duration>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let time = value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        match time {
            Some(time) if !time.is_zero() && time <= bound => Ok(Some(time)),
            _ => {
                let bound = grouped(bound.as_secs());
                let expected = format!("a number of seconds above 0 and up to {bound}");
                Err(self.wrong(name, &expected, &value))
            }
        }
    }

    /// One of several words. If the argument is missing, the first word.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<T, Failure> {
        let words = || {
            let words: Vec<String> =
                choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            words.join(" or ")
        };
        let chosen = match self.take(name) {
            None => choices.first(),
            Some(Value::String(word)) => match choices.iter().find(|(name, _)| *name == word) {
                Some(choice) => Some(choice),
                None => return Err(self.wrong(name, &words(), &Value::String(word))),
            },
            Some(other) => return Err(self.wrong(name, &words(), &other)),
        };
        match chosen {
            Some((_, value)) => Ok(*value),
            None => Err(self.missing(name, &words())),
        }
    }

    pub(crate) fn variables(&mut self, name: &str) -> Result<BTreeMap<String, String>, Failure> {
        let expected = "an object of strings";
        let pairs = match self.take(name) {
            None => return Ok(BTreeMap::new()),
            Some(Value::Object(pairs)) => pairs,
            Some(other) => return Err(self.wrong(name, expected, &other)),
        };
        let pair = |(key, value): (String, Value)| match value {
            Value::String(value) => Ok((key, value)),
            other => Err(self.wrong(&format!("{name}.{key}"), "a string", &other)),
        };
        pairs.into_iter().map(pair).collect()
    }

    /// The error for a required argument that is missing.
    pub(crate) fn missing(&self, name: &str, expected: &str) -> Failure {
        Failure::misuse(format!("{} needs '{name}': {expected}", self.tool))
    }

    pub(crate) fn wrong(&self, name: &str, expected: &str, given: &Value) -> Failure {
        Failure::misuse(format!("'{name}' must be {expected}, not {}", described(given)))
    }

    /// Removes an argument and returns it. A null counts as missing.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name).filter(|value| !value.is_null())
    }
}

pub(crate) fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) if text.chars().count() <= 40 => format!("\"{text}\""),
        Value::String(_) => "a long string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(value: Value) -> Arguments {
        let Value::Object(values) = value else { panic!("not an object") };
        Arguments { tool: "a_tool", values }
    }

    #[test]
    fn numbers_are_whole_and_not_negative() {
        for (value, expect) in [
            (json!(5), Some(5)),
            (json!(5.0), Some(5)),
            (json!(null), None),
            (json!(18_446_744_073_709_551_615_u64), Some(u64::MAX)),
        ] {
            assert_eq!(arguments(json!({ "n": value })).whole("n").unwrap(), expect);
        }
        for value in [json!(-1), json!(1.5), json!("5"), json!(1e300), json!([])] {
            let failure = arguments(json!({ "n": value })).whole("n").unwrap_err();
            assert!(failure.to_string().contains("'n' must be a whole number"), "{failure}");
        }
    }

    #[test]
    fn times_pass_and_end() {
        let bound = Duration::from_secs(3600);
        for (value, millis) in
            [(json!(0.5), Some(500)), (json!(3600), Some(3_600_000)), (json!(null), None)]
        {
            let time = arguments(json!({ "t": value })).time("t", bound).unwrap();
            assert_eq!(time, millis.map(Duration::from_millis));
        }
        for value in [json!(0), json!(-1), json!(1e300), json!(1e-300), json!(3601), json!("NaN")] {
            let failure = arguments(json!({ "t": value })).time("t", bound).unwrap_err();
            let why = "'t' must be a number of seconds above 0 and up to 3,600, not ";
            assert!(failure.to_string().starts_with(why), "{failure}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let Value::Object(values) = json!({ "dry_run": true }) else { unreachable!() };
        let failure = Arguments::new("edit_file", &["path", "dryRun"], values).unwrap_err();
        let expect = "edit_file has no argument 'dry_run'; it takes path, dryRun";
        assert_eq!(failure.to_string(), expect);
    }
}
