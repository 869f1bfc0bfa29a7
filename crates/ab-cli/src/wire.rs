//! The composition root of `serve`: store, executor, control plane and router.

use std::path::Path;
use std::sync::Arc;

use ab_api::AgentListing;
use ab_control::{Control, Settings};
use ab_core::{Code, Error, Kind};
use ab_executor::{ExecutorSettings, LocalExecutor};
use ab_server::{App, ControlSurface, Gate, TaskCatalog};
use ab_store::{DataDir, Store, StoreError};

use crate::failure::Failure;

/// What `serve` runs.
pub(crate) struct Parts {
    pub(crate) app: App,
    /// Shut down after the port is closed.
    pub(crate) control: Control,
}

/// Locks the data directory and opens the store in it.
///
/// # Errors
///
/// [`Kind::Unavailable`] if another process uses it, or it cannot be used.
pub(crate) async fn store(directory: &Path) -> Result<Store, Failure> {
    let data_dir = DataDir::open(directory).map_err(failed)?;
    Store::open(data_dir).await.map_err(failed)
}

/// Connects the parts, and takes up the sessions of an earlier process.
///
/// # Errors
///
/// Errors of the store, and of the executor if there is no git.
pub(crate) async fn assemble(store: Store, directory: &Path, gate: Gate) -> Result<Parts, Failure> {
    let own =
        std::env::current_exe().map_err(|error| Failure::input("find this program", error))?;
    let mut settings = ExecutorSettings::new(directory, own);
    settings.environment = std::env::vars_os().collect();
    let executor = LocalExecutor::new(settings).map_err(|error| {
        Failure::from(Error::new(Code::MissingUtilities, Kind::Unavailable, error.to_string()))
    })?;
    let catalog = catalog(&executor);
    let control = Control::start(store, Arc::new(executor), Settings::default()).await;
    let control = control.map_err(failed)?;
    let surface = ControlSurface::new(control.clone(), catalog);
    Ok(Parts { app: App::new(gate).with_control(surface), control })
}

/// The agents that tasks can name.
fn catalog(executor: &LocalExecutor) -> TaskCatalog {
    let mut catalog = TaskCatalog::default();
    for entry in executor.catalog().entries() {
        catalog.agents.push(AgentListing {
            kind: entry.id.clone(),
            versions: Vec::new(),
            settings_schema_ref: None,
        });
        for alias in &entry.aliases {
            catalog.aliases.insert(alias.clone(), entry.id.clone());
        }
    }
    catalog
}

fn failed(error: StoreError) -> Failure {
    let is_locked = matches!(error, StoreError::Locked { .. });
    let failure =
        Failure::from(Error::new(Code::InvalidConfiguration, Kind::Unavailable, error.to_string()));
    if is_locked {
        return failure.with_hint("use that server, or another --data-dir");
    }
    failure
}
