//! Handles several paths in one command. Each path is handled separately, and failures are printed
//! as they happen.

use std::ffi::OsString;

use serde_json::Value;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

/// The results for the paths of one command.
#[derive(Debug)]
pub(crate) struct Outcomes {
    several: bool,
    values: Vec<Value>,
    first_failure: Option<Exit>,
}

impl Outcomes {
    pub(crate) fn of(paths: &[OsString]) -> Outcomes {
        Outcomes { several: paths.len() > 1, values: Vec::new(), first_failure: None }
    }

    /// Keeps a value, or prints a failure. The command stops only if the output pipe is closed.
    pub(crate) fn record(
        &mut self,
        outcome: Result<Value, Failure>,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        match outcome {
            Ok(value) => self.values.push(value),
            Err(Failure::ClosedPipe) => return Err(Failure::ClosedPipe),
            Err(failure) => {
                terminal.tell(&failure);
                self.first_failure.get_or_insert(failure.exit());
            }
        }
        Ok(())
    }

    /// Prints the JSON values if JSON was requested. For a single path this is one object. For
    /// several paths it is an array of the successful results. The first failure determines the
    /// exit code.
    pub(crate) fn finish(mut self, terminal: &mut Terminal) -> Result<(), Failure> {
        match (terminal.format(), self.several) {
            (Format::Json, true) => terminal.value(&Value::Array(self.values))?,
            (Format::Json, false) => {
                if let Some(value) = self.values.pop() {
                    terminal.value(&value)?;
                }
            }
            (Format::Text, _) => {}
        }
        match self.first_failure {
            Some(exit) => Err(Failure::Told(exit)),
            None => Ok(()),
        }
    }
}
