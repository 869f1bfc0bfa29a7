//! The state of the shell at one point of the script: the directories in which it may be, and the
//! variables.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::place::CommandPathLocation;
use crate::shell::Meter;

/// Maximum number of variables. A line with more of them exceeds the limits of the analysis.
pub(super) const MAX_VARIABLES: usize = 2_000;
/// Maximum number of directories on the stack of `pushd`. Older ones are dropped.
const MAX_STACK: usize = 64;

/// Maximum number of possible directories. If there are more, the directory counts as unknown.
const MAX_DIRECTORIES: usize = 4;

/// The possible directories and the variables of a shell. Cheap to clone, because most commands
/// change nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    directories: Rc<Vec<Directory>>,
    variables: Rc<BTreeMap<Rc<str>, Option<Rc<str>>>>,
    /// The directories on the stack of `pushd`.
    stack: Rc<Vec<Vec<Directory>>>,
    /// The directory to which `cd -` changes.
    previous: Rc<Vec<Directory>>,
}

/// A directory that the shell may be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) place: CommandPathLocation,
    /// Whether the shell is in this directory only if a change of directory failed.
    pub(super) doubtful: bool,
}

impl Directory {
    pub(super) fn certain(place: CommandPathLocation) -> Self {
        Self { place, doubtful: false }
    }
}

const NOWHERE: Directory = Directory { place: CommandPathLocation::Unknown, doubtful: false };

/// The state after a command if it succeeds, and the state if it fails. A state is `None` if its
/// outcome is impossible, as after `exit`.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) ok: Option<State>,
    pub(super) fail: Option<State>,
}

impl Flow {
    pub(super) fn same(state: State) -> Self {
        Self { ok: Some(state.clone()), fail: Some(state) }
    }

    pub(super) fn joined(self, meter: &Meter) -> Option<State> {
        join(self.ok, self.fail, meter)
    }
}

/// The state after one of two alternatives was executed.
pub(super) fn join(one: Option<State>, other: Option<State>, meter: &Meter) -> Option<State> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.or(other, meter)),
        (one, other) => one.or(other),
    }
}

impl State {
    pub(super) fn new(start: CommandPathLocation) -> Self {
        Self {
            directories: Rc::new(vec![Directory::certain(start)]),
            variables: Rc::default(),
            stack: Rc::default(),
            previous: Rc::new(vec![NOWHERE]),
        }
    }

    /// The directories in which the shell may be, including the directories after a failed change
    /// of directory.
    pub(super) fn directories(&self) -> &[Directory] {
        &self.directories
    }

    /// The directories that the shell may be in if no change of directory failed.
    pub(super) fn likely(&self) -> impl Iterator<Item = &CommandPathLocation> {
        let all = self.directories.iter().all(|directory| directory.doubtful);
        let likely = self.directories.iter().filter(move |directory| all || !directory.doubtful);
        likely.map(|directory| &directory.place)
    }

    /// The state after a change of directory failed.
    pub(super) fn stayed(mut self) -> Self {
        for directory in Rc::make_mut(&mut self.directories) {
            directory.doubtful = true;
        }
        self
    }

    pub(super) fn enter(&mut self, places: Vec<Directory>) {
        self.previous = std::mem::replace(&mut self.directories, Rc::new(places));
    }

    pub(super) fn push_directory(&mut self) {
        let here = self.directories.to_vec();
        let stack = Rc::make_mut(&mut self.stack);
        if stack.len() == MAX_STACK {
            stack.remove(0);
        }
        stack.push(here);
    }

    pub(super) fn pop_directory(&mut self) -> Vec<Directory> {
        let popped = Rc::make_mut(&mut self.stack).pop();
        popped.unwrap_or_else(|| vec![NOWHERE])
    }

    pub(super) fn previous(&self) -> Vec<Directory> {
        self.previous.to_vec()
    }

    /// The value of a variable. `None` if it was never set here, `Some(None)` if its value is not
    /// known.
    pub(super) fn variable(&self, name: &str) -> Option<Option<&str>> {
        self.variables.get(name).map(Option::as_deref)
    }

    /// Sets a variable. `None` stands for a value that is only known at run time.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>, meter: &Meter) {
        if Rc::strong_count(&self.variables) > 1 {
            meter.spend(self.variables.len());
        }
        let value = value.map(Rc::from);
        Rc::make_mut(&mut self.variables).insert(Rc::from(name), value);
    }

    /// The number of variables, for comparison with [`MAX_VARIABLES`].
    pub(super) fn variables(&self) -> usize {
        self.variables.len()
    }

    /// Returns this state, but with the variables of another state.
    pub(super) fn with_variables_of(self, other: &State) -> State {
        State { variables: other.variables.clone(), ..self }
    }

    fn or(self, other: State, meter: &Meter) -> State {
        if !Rc::ptr_eq(&self.variables, &other.variables) {
            meter.spend(2 * (self.variables.len() + other.variables.len()));
        }
        if self == other {
            return self;
        }
        let mut joined = self.clone();
        if self.directories != other.directories {
            let mut directories = self.directories.to_vec();
            for there in other.directories.iter() {
                match directories.iter_mut().find(|here| here.place == there.place) {
                    Some(here) => here.doubtful &= there.doubtful,
                    None => directories.push(there.clone()),
                }
            }
            if directories.len() > MAX_DIRECTORIES {
                directories = vec![NOWHERE];
            }
            joined.directories = Rc::new(directories);
        }
        if self.variables != other.variables {
            let variables = Rc::make_mut(&mut joined.variables);
            for (name, value) in other.variables.iter() {
                // If only one of the states has set the variable, its value is not known.
                let same = variables.get(name).is_some_and(|own| own == value);
                if !same {
                    variables.insert(name.clone(), None);
                }
            }
            for (name, value) in variables.iter_mut() {
                if !other.variables.contains_key(name) {
                    *value = None;
                }
            }
        }
        if self.stack != other.stack {
            joined.stack = Rc::default();
        }
        if self.previous != other.previous {
            joined.previous = Rc::new(vec![NOWHERE]);
        }
        joined
    }

    /// The state after any number of rounds of a loop. `after` is the state after one round.
    pub(super) fn looped(&self, after: &State, meter: &Meter) -> State {
        let mut joined = self.clone().or(after.clone(), meter);
        if self.directories != after.directories {
            joined.directories = Rc::new(vec![NOWHERE]);
        }
        joined
    }
}
