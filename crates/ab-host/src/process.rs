//! Processes of the host: how they are started, how their output is read, and how they end.

pub(crate) mod child;
pub(crate) mod incarnation;
pub(crate) mod readiness;
pub(crate) mod running;
pub(crate) mod spawner;
pub(crate) mod spool;
pub(crate) mod strays;
pub(crate) mod stream;
pub(crate) mod supervise;
pub(crate) mod table;
pub(crate) mod watchdog;
