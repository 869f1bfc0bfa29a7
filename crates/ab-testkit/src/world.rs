//! A backend for one test, with the values that must live as long as it does.

use std::any::Any;
use std::fmt;
use std::ops::Deref;

use ab_core::Backend;

/// A fixture's result: a backend with its own workspace.
pub struct TestBackend {
    pub backend: Backend,
    _keep: Box<dyn Any + Send>,
}

impl TestBackend {
    pub fn new(backend: Backend) -> Self {
        Self::keeping_alive(backend, ())
    }

    /// Keeps `kept`, such as a temporary directory, until the test is over.
    pub fn keeping_alive(backend: Backend, kept: impl Any + Send) -> Self {
        Self { backend, _keep: Box::new(kept) }
    }
}

impl Deref for TestBackend {
    type Target = Backend;

    fn deref(&self) -> &Backend {
        &self.backend
    }
}

impl fmt::Debug for TestBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestBackend").field("backend", &self.backend).finish_non_exhaustive()
    }
}
