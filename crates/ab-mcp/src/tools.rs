//! The tools, one file for each family: what a caller may say, what is done, what is answered.

pub(crate) mod boundary;
pub(crate) mod delete;
pub(crate) mod directories;
pub(crate) mod edit;
pub(crate) mod exec;
pub(crate) mod grep;
pub(crate) mod ignored;
pub(crate) mod info;
pub(crate) mod media;
pub(crate) mod output;
pub(crate) mod processes;
pub(crate) mod read;
pub(crate) mod relocate;
pub(crate) mod search;
pub(crate) mod several;
pub(crate) mod tree;
pub(crate) mod write;

use crate::answer::ToolAnswer;
use crate::failure::Failure;

pub(crate) type Outcome = Result<ToolAnswer, Failure>;
