//! What the shell knows at a point of the script: possible directories and variables.

use std::rc::Rc;

use crate::place::Place;

/// Directories that are told apart; more of them are none that is known.
const MAX_DIRECTORIES: usize = 4;

/// Cheap to clone: most commands change nothing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    directories: Rc<Vec<Directory>>,
    variables: Rc<Vec<(String, Option<String>)>>,
    /// Where `pushd` came from.
    stack: Rc<Vec<Vec<Directory>>>,
    /// Where `cd -` leads.
    previous: Rc<Vec<Directory>>,
}

/// Where the shell may be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Directory {
    pub(super) place: Place,
    /// Only if a change of directory failed.
    pub(super) doubtful: bool,
}

impl Directory {
    pub(super) fn certain(place: Place) -> Self {
        Self { place, doubtful: false }
    }
}

const NOWHERE: Directory = Directory { place: Place::Unknown, doubtful: false };

/// How a command leaves things when it succeeds and when it fails. Nothing: it does not come back.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) ok: Option<State>,
    pub(super) fail: Option<State>,
}

impl Flow {
    pub(super) fn same(state: State) -> Self {
        Self { ok: Some(state.clone()), fail: Some(state) }
    }

    pub(super) fn joined(self) -> Option<State> {
        join(self.ok, self.fail)
    }
}

/// What holds after either.
pub(super) fn join(one: Option<State>, other: Option<State>) -> Option<State> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.or(other)),
        (one, other) => one.or(other),
    }
}

impl State {
    pub(super) fn new(start: Place) -> Self {
        Self {
            directories: Rc::new(vec![Directory::certain(start)]),
            variables: Rc::default(),
            stack: Rc::default(),
            previous: Rc::new(vec![NOWHERE]),
        }
    }

    /// Where the shell may be, whatever failed before.
    pub(super) fn directories(&self) -> &[Directory] {
        &self.directories
    }

    /// Where the shell is unless a change of directory failed.
    pub(super) fn likely(&self) -> impl Iterator<Item = &Place> {
        let all = self.directories.iter().all(|directory| directory.doubtful);
        let likely = self.directories.iter().filter(move |directory| all || !directory.doubtful);
        likely.map(|directory| &directory.place)
    }

    /// The same, after a change of directory that failed.
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
        Rc::make_mut(&mut self.stack).push(here);
    }

    pub(super) fn pop_directory(&mut self) -> Vec<Directory> {
        let popped = Rc::make_mut(&mut self.stack).pop();
        popped.unwrap_or_else(|| vec![NOWHERE])
    }

    pub(super) fn previous(&self) -> Vec<Directory> {
        self.previous.to_vec()
    }

    /// `None`: never set here. `Some(None)`: set to something unknown.
    pub(super) fn variable(&self, name: &str) -> Option<Option<&str>> {
        let set = self.variables.iter().find(|(each, _)| each == name);
        set.map(|(_, value)| value.as_deref())
    }

    pub(super) fn set(&mut self, name: &str, value: Option<String>) {
        let variables = Rc::make_mut(&mut self.variables);
        match variables.iter_mut().find(|(each, _)| each == name) {
            Some((_, old)) => *old = value,
            None => variables.push((name.to_owned(), value)),
        }
    }

    /// The same, with the variables of another.
    pub(super) fn with_variables_of(self, other: &State) -> State {
        State { variables: other.variables.clone(), ..self }
    }

    fn or(self, other: State) -> State {
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
            for (name, value) in other.variables.iter().chain(self.variables.iter()) {
                let known = |state: &State| state.variable(name).flatten().map(str::to_owned);
                let same = known(&self) == known(&other);
                joined.set(name, value.clone().filter(|_| same));
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

    /// What holds after any number of rounds that each may leave `after` behind.
    pub(super) fn looped(&self, after: &State) -> State {
        let mut joined = self.clone().or(after.clone());
        if self.directories != after.directories {
            joined.directories = Rc::new(vec![NOWHERE]);
        }
        joined
    }
}
