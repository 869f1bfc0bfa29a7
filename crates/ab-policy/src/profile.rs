//! Profiles: how much is judged.

use std::fmt;
use std::str::FromStr;

use ab_core::Error;
use serde::{Deserialize, Serialize};

use crate::rules::invalid;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Judged by effect, part by part.
    #[default]
    Guarded,
    /// One plain command at a time; what `guarded` would ask about is refused.
    Strict,
    /// Nothing is judged.
    Off,
}

impl Profile {
    pub const ALL: [Profile; 3] = [Profile::Guarded, Profile::Strict, Profile::Off];

    pub fn as_str(self) -> &'static str {
        match self {
            Profile::Guarded => "guarded",
            Profile::Strict => "strict",
            Profile::Off => "off",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Profile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Profile::ALL.into_iter().find(|profile| profile.as_str() == text);
        found.ok_or_else(|| {
            invalid(format!("no profile is called '{text}'")).with_hint("guarded, strict or off")
        })
    }
}
