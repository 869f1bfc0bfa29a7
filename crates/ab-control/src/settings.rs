//! Limits and timeouts of the control plane.

use std::time::Duration;

use ab_store::UploadLimits;

use crate::crash::CrashTestHook;
use crate::observation::EndedSessionTraceSender;
use crate::retention::RetentionSettings;

/// The limits and timeouts that the operator can set.
#[derive(Debug, Clone)]
pub struct ControlPlaneSettings {
    /// Maximum number of sessions that run at the same time. Others stay queued.
    pub max_running: usize,
    /// How long a stopped agent may take to finish.
    pub stop_grace: Duration,
    /// How long a session that is kept open waits for a prompt before its result is delivered.
    pub idle_timeout: Duration,
    /// How long a question waits for a decision before it expires.
    pub approval_timeout: Duration,
    /// Limits on uploads.
    pub uploads: UploadLimits,
    /// How long and how much data of ended sessions is kept.
    pub retention: RetentionSettings,
    /// Receives the traces of sessions that end.
    pub traces: Option<EndedSessionTraceSender>,
    /// Called at crash points. Does nothing outside of tests.
    pub crash_hook: CrashTestHook,
}

impl Default for ControlPlaneSettings {
    fn default() -> Self {
        Self {
            max_running: 16,
            stop_grace: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(30 * 60),
            approval_timeout: Duration::from_secs(24 * 60 * 60),
            uploads: UploadLimits::default(),
            retention: RetentionSettings::default(),
            traces: None,
            crash_hook: CrashTestHook::default(),
        }
    }
}
