//! Profiles, which determine how strictly commands are judged.

use std::fmt;
use std::str::FromStr;

use ab_core::Error;
use serde::{Deserialize, Serialize};

use crate::rules::invalid;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyProfile {
    /// Every command in a line is judged by its effects.
    #[default]
    Guarded,
    /// Allows only one plain command at a time. Refuses commands for which `guarded` requires an
    /// approval.
    Strict,
    /// Commands are not judged.
    Off,
}

impl PolicyProfile {
    pub const ALL: [PolicyProfile; 3] =
        [PolicyProfile::Guarded, PolicyProfile::Strict, PolicyProfile::Off];

    pub fn as_str(self) -> &'static str {
        match self {
            PolicyProfile::Guarded => "guarded",
            PolicyProfile::Strict => "strict",
            PolicyProfile::Off => "off",
        }
    }
}

impl fmt::Display for PolicyProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PolicyProfile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = PolicyProfile::ALL.into_iter().find(|profile| profile.as_str() == text);
        found.ok_or_else(|| {
            invalid(format!("no profile is called '{text}'")).with_hint("guarded, strict or off")
        })
    }
}
