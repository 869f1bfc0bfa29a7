//! Derives a handle from another one. No other module does this.
//!
//! A derived handle never has more rights than its parent. It has the guards, the scope and the
//! restrictions of its parent. Its own guards, scope and restrictions apply before those of the
//! parent.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Backend, ScopeOptions};
use crate::call::{Actor, Verb};
use crate::error::Result;
use crate::guard::Guards;
use crate::life::Life;
use crate::path::{PathInput, PathParser, PathStrictness, WsPath};
use crate::process::PathRestrictions;
use crate::restricted::{PathFilters, Restricted};
use crate::scoped::Scoped;
use crate::stack::Stack;

/// The restrictions and the actor of a derived handle. The default restricts nothing.
#[derive(Clone, Debug, Default)]
pub struct NarrowOptions {
    /// The actor of all calls through the derived handle. All guards see this actor, including the
    /// guards of the parent handle and of mounted workspaces. `None` keeps the parent's actor.
    pub actor: Option<Actor>,
    /// The directory that becomes the root of the derived handle. The first write creates the
    /// directory. Nothing outside of the directory can be reached, not even through a link.
    pub scope: Option<WsPath>,
    /// Variables for every command. A command's own variables take precedence.
    pub env: BTreeMap<String, String>,
    /// Guards that run first, with paths relative to the derived handle.
    pub guards: Guards,
    /// Hidden or read-only paths, relative to the root of the derived handle.
    pub restrictions: PathRestrictions,
    /// Functions that decide which paths are hidden.
    pub path_filters: PathFilters,
    /// How strictly texts are parsed as paths. If the parent is strict, the derived handle stays
    /// strict.
    pub path_strictness: PathStrictness,
}

impl NarrowOptions {
    /// Options that only change the actor.
    pub fn for_actor(actor: impl Into<Actor>) -> Self {
        Self { actor: Some(actor.into()), ..Self::default() }
    }

    pub fn for_scope(path: WsPath) -> Self {
        Self { scope: Some(path), ..Self::default() }
    }
}

impl Backend {
    /// Derives a handle with the given restrictions. The derived handle lives as long as this
    /// handle. Destroying the derived handle does not affect other handles.
    pub fn narrow(&self, options: NarrowOptions) -> Result<Backend> {
        self.life.check(Verb::Stat)?;
        let NarrowOptions {
            actor,
            scope,
            env,
            guards,
            restrictions,
            path_filters: filters,
            path_strictness: paths,
        } = options;
        let bare =
            actor.is_none() && env.is_empty() && restrictions.is_empty() && filters.is_empty();
        let recipe = self.recipe.as_ref().filter(|_| bare);
        let mut rules = match paths {
            PathStrictness::Lenient => (*self.rules).clone(),
            PathStrictness::Strict => (*self.rules).clone().into_strict(),
        };
        let mut stack = match &actor {
            Some(actor) => self.stack.acting_as(actor),
            None => self.stack.clone(),
        };
        let mut recipe = recipe.cloned();
        let mut own_env = env;
        if let Some(prefix) = &scope {
            let env = std::mem::take(&mut own_env);
            let view = Arc::new(Scoped::new(stack.driver().clone(), prefix, env));
            stack = stack.scoped(view);
            rules = rules.for_scope(prefix);
            recipe = recipe.map(|recipe| recipe.inside(prefix));
        }
        if !restrictions.is_empty() || !own_env.is_empty() || !filters.is_empty() {
            let view = Restricted::new(stack.driver().clone(), restrictions, own_env, filters)?;
            stack = stack.restricted(Arc::new(view));
        }
        let actor = actor.unwrap_or_else(|| self.actor.clone());
        let derived = self.derive(stack, rules, actor, guards);
        let recipe = recipe.filter(|_| derived.guards.is_empty());
        Ok(Backend { recipe, ..derived })
    }

    /// A handle on a subdirectory, which is created by the first write. Nothing outside of the
    /// directory can be reached through the handle, not even through a link.
    pub fn scope<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        options: ScopeOptions,
    ) -> Result<Backend> {
        let scope = Some(self.parse(Verb::Stat, path)?);
        let guards = Guards { journal: options.journal, ..Guards::default() };
        self.narrow(NarrowOptions { scope, env: options.env, guards, ..NarrowOptions::default() })
    }

    /// A handle with hidden or read-only paths, which apply to files and commands. The restrictions
    /// can also make other directories of the host visible to commands. The restrictions of this
    /// handle also apply to the new handle.
    ///
    /// For commands, the kernel enforces the restrictions if there is isolation.
    /// [`effective_policy`](Self::effective_policy) reports restrictions that are not enforced.
    pub fn restrict(&self, restrictions: PathRestrictions) -> Result<Backend> {
        self.narrow(NarrowOptions { restrictions, ..NarrowOptions::default() })
    }

    /// Creates a handle on `view`, which is a driver over the driver of this handle. Adds no
    /// guards.
    pub(super) fn viewed(&self, view: Stack) -> Backend {
        self.derive(view, (*self.rules).clone(), self.actor.clone(), Guards::default())
    }

    /// Creates a handle on `view`, which is a driver over the driver of this handle. Calls pass the
    /// guards of the new handle first, and then those of this handle.
    fn derive(&self, view: Stack, rules: PathParser, actor: Actor, guards: Guards) -> Backend {
        let own: Arc<[_]> = guards.in_order().into();
        let guards = own.iter().chain(self.guards.iter()).cloned().collect();
        Backend {
            stack: view.guarded(&actor, own),
            rules: Arc::new(rules),
            actor,
            life: Life::scope(&self.life),
            guards,
            mounts: None,
            recipe: None,
        }
    }
}
