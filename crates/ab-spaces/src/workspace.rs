//! The workspace of a space: a backend with the policy document as one of its guards.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ab_core::process::{ExecLimits, PathRestrictions};
use ab_core::{
    Approver, Backend, BackendOptions, Guards, MemoryDriver, NarrowOptions, NetworkAccess,
    PathFilter, PathFilters, Principal, Result,
};
use ab_local::{LocalWorkspaceConfig, open_local_workspace};
use ab_policy::{PolicyDocument, PolicyDocumentGuard};

use crate::gate::RunGate;

/// A workspace with its policy. File routes, MCP and runs use handles of the same backend.
#[derive(Clone)]
pub struct SpaceWorkspace {
    backend: Backend,
    pub(crate) gate: Arc<RunGate>,
    document: Arc<PolicyDocument>,
    env: BTreeMap<String, String>,
}

impl SpaceWorkspace {
    /// Opens a directory. `template` sets how its commands are isolated. `others` answers the
    /// policy's questions for callers that are not operations.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be opened or a variable is not allowed.
    pub fn open_directory(
        root: impl Into<PathBuf>,
        template: &LocalWorkspaceConfig,
        document: PolicyDocument,
        env: BTreeMap<String, String>,
        others: Arc<dyn Approver>,
    ) -> Result<Self> {
        let document = Arc::new(document);
        let gate = RunGate::new(others);
        let mut config = template.clone();
        config.root = root.into();
        config.policy.document = Some(document.clone());
        config.policy.approver = gate.clone();
        config.backend_options.guards.limits.push(gate.clone());
        let exec = &mut config.options.exec;
        let own = ExecLimits {
            wall_time: Some(document.command_timeout()),
            file_size: Some(document.filesystem.max_file_size),
            ..ExecLimits::default()
        };
        exec.limits = exec.limits.tightened_by(own);
        if !document.network.enabled {
            exec.network = NetworkAccess::None;
        }
        let backend = open_local_workspace(config)?.backend;
        let mut restrictions = PathRestrictions::default();
        for path in document.hidden_paths() {
            restrictions.hidden.push(backend.parse_path(path)?);
        }
        if document.filesystem.read_only {
            restrictions.read_only.push(backend.parse_path(".")?);
        }
        Self::with_environment(backend, gate, document, env, restrictions)
    }

    /// Creates an empty workspace in memory. It cannot run commands.
    ///
    /// # Errors
    ///
    /// Fails if a variable is not allowed.
    pub fn open_memory(
        document: PolicyDocument,
        env: BTreeMap<String, String>,
        others: Arc<dyn Approver>,
    ) -> Result<Self> {
        let document = Arc::new(document);
        let gate = RunGate::new(others);
        let guards = Guards {
            policy: vec![Arc::new(PolicyDocumentGuard::new(document.clone()))],
            limits: vec![gate.clone()],
            ..Guards::default()
        };
        let options = BackendOptions { guards, ..BackendOptions::default() };
        let backend = Backend::with_options(Arc::new(MemoryDriver::new()), options);
        Self::with_environment(backend, gate, document, env, PathRestrictions::default())
    }

    fn with_environment(
        backend: Backend,
        gate: Arc<RunGate>,
        document: Arc<PolicyDocument>,
        env: BTreeMap<String, String>,
        restrictions: PathRestrictions,
    ) -> Result<Self> {
        // The policy document is checked before the restrictions, so that a refusal names the rule
        // of the document.
        let guards = Guards {
            policy: vec![Arc::new(PolicyDocumentGuard::new(document.clone()))],
            ..Guards::default()
        };
        let (listing, blocking) = (document.clone(), document.clone());
        let filters = PathFilters {
            hidden_from_listings: Some(PathFilter::new(move |path| listing.is_path_hidden(path))),
            // The driver passes the path to which a link leads. So a blocked file cannot be reached
            // through a link.
            hidden: (!document.filesystem.blocked_paths.is_empty())
                .then(|| PathFilter::new(move |path| blocking.is_path_blocked(path))),
        };
        let narrow = NarrowOptions {
            env: env.clone(),
            restrictions,
            guards,
            path_filters: filters,
            ..NarrowOptions::default()
        };
        let backend = backend.narrow(narrow)?;
        Ok(Self { backend, gate, document, env })
    }

    /// Returns a handle that acts for this principal, so that policy and approvals name the caller.
    ///
    /// # Errors
    ///
    /// Fails if the workspace is destroyed.
    pub fn backend_for_principal(&self, principal: Principal) -> Result<Backend> {
        self.backend.narrow(NarrowOptions::for_actor(principal))
    }

    /// The handle that the server itself uses.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// The policy document that is in force.
    pub fn policy_document(&self) -> &PolicyDocument {
        &self.document
    }

    /// The environment variables that every command receives.
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }
}

impl fmt::Debug for SpaceWorkspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceWorkspace")
            .field("policy", &self.document.name)
            .finish_non_exhaustive()
    }
}
