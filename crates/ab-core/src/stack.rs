//! The driver of a handle and the layers over it, such as guards, scopes and overlays.
//!
//! Guards see the actor of the handle through which a call came. Therefore a handle that is derived
//! for another actor gets a copy of the layers. The new actor is set in every copied layer that has
//! guards. Copied layers share their state with the originals.

use std::sync::Arc;

use crate::call::Actor;
use crate::driver::Driver;
use crate::guard::Guard;
use crate::guarded::Guarded;
use crate::mounts::Mounts;
use crate::overlay::Overlay;
use crate::restricted::Restricted;
use crate::scoped::Scoped;

/// A driver with its layers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    driver: Arc<dyn Driver>,
    layer: Arc<Layer>,
}

/// The outermost layer, together with the stack below it.
#[derive(Debug)]
enum Layer {
    /// The driver itself. Only layers of guards have an actor.
    Base,
    Guards(Stack, Arc<[Arc<dyn Guard>]>),
    Scope(Stack, Arc<Scoped>),
    Restrictions(Stack, Arc<Restricted>),
    Mounts(Arc<Mounts>),
    Overlay(Arc<Overlay>),
}

impl Stack {
    pub(crate) fn base(driver: Arc<dyn Driver>) -> Self {
        Self { driver, layer: Arc::new(Layer::Base) }
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// Adds a layer of guards. Does nothing if `guards` is empty.
    pub(crate) fn guarded(self, actor: &Actor, guards: Arc<[Arc<dyn Guard>]>) -> Self {
        if guards.is_empty() {
            return self;
        }
        let driver = Arc::new(Guarded::new(self.driver.clone(), actor.clone(), guards.clone()));
        Self { driver, layer: Arc::new(Layer::Guards(self, guards)) }
    }

    pub(crate) fn scoped(self, view: Arc<Scoped>) -> Self {
        Self { driver: view.clone(), layer: Arc::new(Layer::Scope(self, view)) }
    }

    pub(crate) fn restricted(self, view: Arc<Restricted>) -> Self {
        Self { driver: view.clone(), layer: Arc::new(Layer::Restrictions(self, view)) }
    }

    pub(crate) fn mounted(view: Arc<Mounts>) -> Self {
        Self { driver: view.clone(), layer: Arc::new(Layer::Mounts(view)) }
    }

    pub(crate) fn overlaid(view: Arc<Overlay>) -> Self {
        Self { driver: view.clone(), layer: Arc::new(Layer::Overlay(view)) }
    }

    /// The same layers for another actor.
    pub(crate) fn acting_as(&self, actor: &Actor) -> Self {
        match &*self.layer {
            Layer::Base => self.clone(),
            Layer::Guards(inner, guards) => inner.acting_as(actor).guarded(actor, guards.clone()),
            Layer::Scope(inner, view) => {
                let inner = inner.acting_as(actor);
                let view = Arc::new(view.over(inner.driver.clone()));
                inner.scoped(view)
            }
            Layer::Restrictions(inner, view) => {
                let inner = inner.acting_as(actor);
                let view = Arc::new(view.over(inner.driver.clone()));
                inner.restricted(view)
            }
            Layer::Mounts(view) => Self::mounted(Arc::new(view.acting_as(actor))),
            Layer::Overlay(view) => Self::overlaid(Arc::new(view.acting_as(actor))),
        }
    }
}
