//! Reads the members of a JSON object and records every problem.

use std::collections::BTreeSet;

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::available;
use crate::violation::FieldViolations;

/// Parses a body that must be a JSON object, and returns its members.
///
/// # Errors
///
/// Returns one violation about the whole body.
pub(crate) fn parsed(body: &[u8]) -> Result<Map<String, Value>, FieldViolations> {
    let mut found = FieldViolations::default();
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => return Ok(members),
        Ok(_) => found.add_invalid("", "the body must be a JSON object"),
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            let message = format!("the body is not valid JSON (line {line}, column {column})");
            found.add_invalid("", message);
        }
    }
    Err(found)
}

/// Reads one JSON object. Members that were not read are reported as unknown by [`Fields::end`].
pub(crate) struct Fields<'a> {
    /// The path of the object with a dot at the end. Empty for the body itself.
    prefix: String,
    members: Option<&'a Map<String, Value>>,
    read: BTreeSet<&'static str>,
}

impl<'a> Fields<'a> {
    pub(crate) fn body(members: &'a Map<String, Value>) -> Self {
        Self { prefix: String::new(), members: Some(members), read: BTreeSet::new() }
    }

    /// Reads an entry of a list, which must be an object.
    pub(crate) fn entry(
        path: String,
        value: &'a Value,
        found: &mut FieldViolations,
    ) -> Option<Self> {
        let members = value.as_object();
        if members.is_none() {
            found.add_invalid(path, "must be an object");
            return None;
        }
        Some(Self { prefix: format!("{path}."), members, read: BTreeSet::new() })
    }

    /// The path of the member `name`.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn object(&mut self, name: &'static str, found: &mut FieldViolations) -> Fields<'a> {
        let members = self.typed(name, "an object", Value::as_object, found);
        let prefix = format!("{}.", self.path(name));
        Fields { prefix, members, read: BTreeSet::new() }
    }

    pub(crate) fn text(
        &mut self,
        name: &'static str,
        found: &mut FieldViolations,
    ) -> Option<&'a str> {
        self.typed(name, "a string", Value::as_str, found)
    }

    pub(crate) fn required_text(
        &mut self,
        name: &'static str,
        found: &mut FieldViolations,
    ) -> Option<&'a str> {
        if self.get(name).is_none() {
            found.add_invalid(self.path(name), "is required");
            return None;
        }
        self.text(name, found)
    }

    pub(crate) fn flag(&mut self, name: &'static str, found: &mut FieldViolations) -> Option<bool> {
        self.typed(name, "true or false", Value::as_bool, found)
    }

    pub(crate) fn number(
        &mut self,
        name: &'static str,
        found: &mut FieldViolations,
    ) -> Option<f64> {
        self.typed(name, "a number", Value::as_f64, found)
    }

    pub(crate) fn required_number(
        &mut self,
        name: &'static str,
        found: &mut FieldViolations,
    ) -> Option<f64> {
        if self.get(name).is_none() {
            found.add_invalid(self.path(name), "is required");
            return None;
        }
        self.number(name, found)
    }

    pub(crate) fn list(&mut self, name: &'static str, found: &mut FieldViolations) -> &'a [Value] {
        self.typed(name, "a list", Value::as_array, found).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn map(
        &mut self,
        name: &'static str,
        found: &mut FieldViolations,
    ) -> Option<&'a Map<String, Value>> {
        self.typed(name, "an object", Value::as_object, found)
    }

    /// Reads a member that names one of `choices`. The choices are pairs of name and value.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
        found: &mut FieldViolations,
    ) -> Option<T> {
        let text = self.text(name, found)?;
        let choice = one_of(text, choices);
        match choice {
            None => found.add_invalid(self.path(name), not_one_of(choices)),
            Some(_) if available::unavailable(&self.path(name), Some(text)).is_some() => {
                found.add_unavailable(self.path(name), format!("{text:?} is not available yet"));
            }
            Some(_) => {}
        }
        choice
    }

    pub(crate) fn required_choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
        found: &mut FieldViolations,
    ) -> Option<T> {
        if self.get(name).is_none() {
            found.add_invalid(self.path(name), "is required");
            return None;
        }
        self.choice(name, choices, found)
    }

    /// Reads a member that this version does not support. Any value except an empty list or object
    /// is reported.
    pub(crate) fn refuse_unavailable(&mut self, name: &'static str, found: &mut FieldViolations) {
        let asks = match self.get(name) {
            None => false,
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(members)) => !members.is_empty(),
            Some(_) => true,
        };
        let path = self.path(name);
        if asks && available::unavailable(&path, None).is_some() {
            found.add_unavailable(path, "is not available yet");
        }
    }

    /// Reports every member that was never read, because a misspelt name must not be ignored.
    pub(crate) fn end(self, found: &mut FieldViolations) {
        for name in self.members.into_iter().flat_map(Map::keys) {
            if !self.read.contains(name.as_str()) {
                found.add_invalid(self.path(name), "is not a known field");
            }
        }
    }

    /// Returns the member `name`. JSON `null` counts as absent.
    fn get(&mut self, name: &'static str) -> Option<&'a Value> {
        self.read.insert(name);
        self.members?.get(name).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &mut self,
        name: &'static str,
        wanted: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
        found: &mut FieldViolations,
    ) -> Option<T> {
        let value = self.get(name)?;
        let converted = convert(value);
        if converted.is_none() {
            found.add_invalid(self.path(name), format!("must be {wanted}"));
        }
        converted
    }
}

/// Serializes a number. Fails if it is not finite: JSON has no such numbers, and serde_json would
/// write `null`, which means that the number is absent.
pub(crate) fn serialize_finite<S: Serializer>(
    number: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) if !number.is_finite() => {
            Err(S::Error::custom(format!("{number} is not a finite number")))
        }
        number => number.serialize(serializer),
    }
}

/// Returns the value of the choice with the name `text`. `None` if there is no such choice.
pub(crate) fn one_of<T: Copy>(text: &str, choices: &[(&str, T)]) -> Option<T> {
    choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
}

/// The error message for a text that is the name of none of the choices.
pub(crate) fn not_one_of<T>(choices: &[(&str, T)]) -> String {
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    format!("must be one of: {}", names.join(", "))
}
